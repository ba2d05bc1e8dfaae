"""Atari games on both backends: a test for each trap, on real games."""

import cv2
import numpy as np
import pytest
from ale_py import Action, ALEInterface, roms
from stable_baselines3.common.monitor import Monitor

from rims_rl.agents import RecurrentPPO
from rims_rl.envs.atari.atari_vector import AtariVecEnv
from rims_rl.envs.atari.sb3_wrappers import make_sb3_atari
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import WITHOUT_NOOP, atari_games, resolve


def play(env, steps, policy=None, seed=0):
    """Observations, rewards, dones and infos of ``steps`` random (or chosen) steps."""
    generator = np.random.default_rng(seed)
    env.reset()
    for _ in range(steps):
        actions = generator.integers(0, env.action_space.n, env.num_envs) if policy is None else policy()
        yield env.step(actions)


def make_ale(game, num_envs=2, seed=0, **options):
    return AtariVecEnv(atari_games()[game], num_envs, num_threads=1, seed=seed, **options)


def make_sb3(game, num_envs=2, seed=0, **options):
    return make_sb3_atari(f"ALE/{game}-v5", num_envs, seed=seed, **options)


both = pytest.mark.parametrize("make", [make_ale, make_sb3])


@both
def test_breakout_does_not_stall_on_no_ops(make):
    """The ball is launched by FIRE, at the start of a game and after each lost life, or nothing would ever end."""
    env = make("Breakout")
    finished = sum("episode" in info for *_, infos in play(env, 600, lambda: np.zeros(2, int)) for info in infos)
    assert finished >= 2


@both
def test_a_lost_life_ends_the_episode_but_not_the_game(make):
    env = make("Breakout")
    lives, ends, games = [5, 5], 0, 0
    for _, _, dones, infos in play(env, 300):
        for i in range(2):
            lost = infos[i]["lives"] < lives[i]
            game_over = "episode" in infos[i]
            assert dones[i] == (lost or game_over)
            assert "terminal_observation" in infos[i] if dones[i] else True
            assert infos[i]["lives"] == (5 if make is make_ale else 0) if game_over else True
            lives[i] = infos[i]["lives"]
            ends, games = ends + lost, games + game_over
    assert games >= 2 and ends >= 3 * games


def test_without_it_only_the_end_of_the_game_ends_the_episode():
    env = make_ale("Breakout", life_loss_ends_episode=False)
    ends = 0
    for _, _, dones, infos in play(env, 300, lambda: np.zeros(2, int)):
        assert [("episode" in info) for info in infos] == dones.tolist()
        ends += dones.sum()
    assert ends >= 2, "FIRE is pressed after lost lives here too"


@both
def test_rewards_are_floats_clipped_in_training_and_the_score_and_length_are_of_the_whole_game(make):
    clipped, raw = (make("DemonAttack", clip_rewards=clip) for clip in (True, False))
    totals, lengths, games, seen = np.zeros(2), np.zeros(2, int), [], set()
    for (_, small, _, infos), (_, large, _, _) in zip(play(clipped, 1500), play(raw, 1500), strict=True):
        assert small.dtype == large.dtype == np.float32
        np.testing.assert_array_equal(small, np.sign(large))
        seen |= set(large.tolist())
        totals, lengths = totals + large, lengths + 1
        for i, info in enumerate(infos):
            if "episode" in info:
                games.append((info["episode"]["r"], totals[i], info["episode"]["l"], lengths[i]))
                totals[i] = lengths[i] = 0
    assert max(seen) >= 10, "DemonAttack pays at least 10 for a hit"
    assert games and all(score == total and length == steps for score, total, length, steps in games)


@both
def test_truncation_is_told_apart_from_termination(make):
    env = make("DemonAttack", max_frames=200)
    dones_seen = truncations = 0
    for _, _, dones, infos in play(env, 200):
        for i in np.flatnonzero(dones):
            dones_seen += 1
            truncations += infos[i]["TimeLimit.truncated"]
            if infos[i]["TimeLimit.truncated"]:
                assert "episode" in infos[i] and infos[i]["episode"]["l"] <= 51
    assert truncations >= 4
    for _, _, dones, infos in play(make("Breakout"), 200):
        assert not any(infos[i]["TimeLimit.truncated"] for i in np.flatnonzero(dones))


@both
def test_the_terminal_observation_is_the_last_frame_of_the_episode(make):
    """Its three older frames are the three newest ones seen before; the observation itself begins something new."""
    for game, options in (("Breakout", {}), ("DemonAttack", {"max_frames": 200})):
        env, before, checked = make(game, **options), None, 0
        for observations, _, dones, infos in play(env, 150):
            for i in np.flatnonzero(dones):
                if before is not None:
                    np.testing.assert_array_equal(infos[i]["terminal_observation"][:3], before[i][1:])
                    checked += 1
                if "episode" in infos[i]:
                    assert not np.array_equal(infos[i]["terminal_observation"], observations[i])
            before = observations.copy()
        assert checked >= 4


@both
def test_the_same_seed_gives_the_same_result_and_another_one_does_not(make):
    def run(seed):
        return np.stack([observations.copy() for observations, *_ in play(make("DemonAttack", seed=seed), 100)])

    assert np.array_equal(run(1), run(1)) and not np.array_equal(run(1), run(2))


@both
def test_a_reset_starts_new_games_even_after_a_lost_life(make):
    env = make("Breakout", 1)

    def until_a_life_is_lost():
        for observations, _, dones, _ in play(env, 100):
            yield observations.copy()
            if dones[0]:
                return

    first = list(until_a_life_is_lost())
    env.seed(0)
    again = list(until_a_life_is_lost())
    assert len(first) < 100 and np.array_equal(first, again)


@pytest.mark.parametrize("game", ["MsPacman", "Freeway"])
def test_both_backends_play_the_same_game_and_differ_only_where_something_moved(game):
    """From the same start, without FIRE, which they press differently. Both shrink frames by area, and agree exactly
    on a still picture; of two different frames ale takes the brighter grey, and sb3 the brighter of each colour."""
    ale, sb3 = make_ale(game, 1, clip_rewards=False), make_sb3(game, 1, clip_rewards=False)
    assert ale.observation_space == sb3.observation_space and ale.action_space == sb3.action_space
    first = ale.reset()
    sb3.env_method("set_wrapper_attr", "override_num_noops", int(ale._frames[0]))
    np.testing.assert_array_equal(first, sb3.reset())
    generator, differences = np.random.default_rng(0), []
    for _ in range(100):
        actions = generator.integers(0, ale.action_space.n, 1)
        (a, reward_a, done_a, _), (b, reward_b, done_b, _) = ale.step(actions), sb3.step(actions)
        assert reward_a == reward_b and done_a == done_b
        if done_a:
            break  # sb3 goes on with a step of its own
        differences.append(np.abs(a[:, -1].astype(float) - b[:, -1]))
    assert len(differences) > 50
    assert 0 < np.count_nonzero(differences) / np.size(differences) < 0.02
    assert np.mean(differences) < 0.1, "of 255 levels of grey"


def test_after_a_lost_life_ale_keeps_the_older_frames_and_sb3_blanks_them():
    for make, kept in ((make_ale, True), (make_sb3, False)):
        lost = [obs[i][:3].any() for obs, _, dones, infos in play(make("Breakout"), 100)
                for i in np.flatnonzero(dones) if "episode" not in infos[i]]  # fmt: skip
        assert len(lost) >= 4 and set(lost) == {kept}


def test_ale_starts_a_game_by_fire_and_sb3_by_no_ops_then_fire_and_the_next_action():
    def by_hand(*actions):
        game = ALEInterface()
        game.setFloat("repeat_action_probability", 0.0)
        game.loadROM(roms.get_rom_path("breakout"))
        for action, frames in actions:
            for _ in range(frames):
                game.act(action)
        return game

    ale, sb3 = make_ale("Breakout", 1), make_sb3("Breakout", 1)
    first = ale.reset()
    screen = by_hand((Action.FIRE, int(ale._frames[0]))).getScreenGrayscale()
    np.testing.assert_array_equal(first[0, -1], cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA))
    sb3.env_method("set_wrapper_attr", "override_num_noops", 7)
    sb3.reset()
    memory = by_hand((Action.NOOP, 7), (Action.FIRE, 4), (Action.RIGHT, 4)).getRAM()
    np.testing.assert_array_equal(sb3.get_attr("ale")[0].getRAM(), memory)


@pytest.mark.parametrize("options", [{"game_mode": 4}, {"difficulty": 1}])
def test_modes_and_difficulties_change_the_game(options):
    def memory(**options):
        env = make_envs(resolve("Breakout", backend="sb3", **options), 1, seed=0)
        list(play(env, 20))
        return env.get_attr("ale")[0].getRAM()

    assert np.array_equal(memory(), memory()) and not np.array_equal(memory(), memory(**options))


def test_sb3_skips_4_frames_and_has_sticky_actions_only_by_the_full_id():
    for name, sticky in (("Pong", 0.0), ("PongNoFrameskip-v4", 0.0), ("ALE/Pong-v5", 0.25)):
        env = make_envs(resolve(name, backend="sb3"), 1, seed=0)
        frames = [infos[0]["episode_frame_number"] for *_, infos in play(env, 5)]
        assert np.diff(frames).tolist() == [4] * 4
        assert env.get_attr("ale")[0].getFloat("repeat_action_probability") == sticky


def test_observations_of_earlier_steps_are_not_overwritten():
    kept = [observations for observations, *_ in play(make_ale("DemonAttack"), 20)]
    copies = [observations.copy() for observations, *_ in play(make_ale("DemonAttack"), 20)]
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))


@pytest.mark.parametrize("rom", atari_games().values())
def test_every_game_resets_and_steps(rom):
    env = AtariVecEnv(rom, 1, num_threads=1, seed=0)
    assert env.observation_space.contains(env.reset()[0])
    for observations, rewards, dones, infos in play(env, 5):
        assert env.observation_space.contains(observations[0])
        assert rewards.shape == dones.shape == (1,) and len(infos) == 1
    env.close()


@pytest.mark.slow
def test_every_game_resets_and_steps_on_sb3_if_one_can_do_nothing_in_it():
    for game, rom in atari_games().items():
        if rom in WITHOUT_NOOP:
            with pytest.raises(AssertionError):
                make_sb3(game, 1)
            continue
        env = make_sb3(game, 1)
        for observations, *_ in play(env, 3):
            assert env.observation_space.contains(observations[0]) and observations.shape == (1, 4, 84, 84)
        env.close()


@pytest.mark.parametrize("rom", ["DemonAttack", "combat", "pacmann"])
def test_a_wrong_rom_is_one_clear_sentence(rom):
    with pytest.raises(ValueError, match=f"for one player, .* got '{rom}'"):
        AtariVecEnv(rom, 1)


@both
def test_it_trains_and_reports_whole_games(make):
    env = make("Breakout", 4, max_frames=400)
    assert env.env_is_wrapped(Monitor) == [True] * 4
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 8}
    model = RecurrentPPO("CnnRimsPolicy", env, n_steps=64, batch_size=128, n_epochs=1, policy_kwargs=kwargs)
    model.learn(768)
    assert len(model.ep_info_buffer) >= 4 and all(50 < episode["l"] <= 101 for episode in model.ep_info_buffer)
    assert env.get_images()[0].shape == ((84, 84, 3) if make is make_ale else (210, 160, 3))
