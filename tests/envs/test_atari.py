"""ALE's vector environment for Stable-Baselines3: a test for each trap, on real games."""

import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor

from rims_rl.agents import RecurrentPPO
from rims_rl.envs.atari import AtariVecEnv
from rims_rl.envs.names import atari_games


def play(env, steps, policy=None, seed=0):
    """Observations, rewards, dones and infos of ``steps`` random (or chosen) steps."""
    generator = np.random.default_rng(seed)
    env.reset()
    for _ in range(steps):
        actions = generator.integers(0, env.action_space.n, env.num_envs) if policy is None else policy()
        yield env.step(actions)


def make(rom, num_envs=2, **options):
    return AtariVecEnv(rom, num_envs, num_threads=1, seed=0, **options)


def test_breakout_does_not_stall_on_no_ops():
    """The ball is launched by FIRE, at the start of a game and after each lost life, or nothing would ever end."""
    for ends in (True, False):
        env = make("breakout", life_loss_ends_episode=ends)
        finished = sum("episode" in info for *_, infos in play(env, 300, lambda: np.zeros(2, int)) for info in infos)
        assert finished >= 2


def test_a_lost_life_ends_the_episode_but_not_the_game():
    env = make("breakout")
    lives, ends, games = [5, 5], 0, 0
    for _, _, dones, infos in play(env, 300):
        for i in range(2):
            lost = infos[i]["lives"] < lives[i]
            game_over = "episode" in infos[i]
            assert dones[i] == (lost or game_over)
            assert infos[i]["lives"] == 5 if game_over else True
            assert "terminal_observation" in infos[i] if dones[i] else True
            lives[i] = infos[i]["lives"]
            ends, games = ends + lost, games + game_over
    assert games >= 2 and ends >= 3 * games


def test_without_it_only_the_end_of_the_game_ends_the_episode():
    env = make("breakout", life_loss_ends_episode=False)
    for _, _, dones, infos in play(env, 300):
        assert [("episode" in info) for info in infos] == dones.tolist()


def test_rewards_are_floats_clipped_in_training_and_the_score_is_raw():
    clipped, raw = make("demon_attack", clip_rewards=True), make("demon_attack", clip_rewards=False)
    totals, scores, seen = np.zeros(2), [], set()
    for (_, small, _, infos), (_, large, _, _) in zip(play(clipped, 1500), play(raw, 1500), strict=True):
        assert small.dtype == large.dtype == np.float32
        np.testing.assert_array_equal(small, np.sign(large))
        seen |= set(large.tolist())
        totals += large
        for i, info in enumerate(infos):
            if "episode" in info:
                scores.append((info["episode"]["r"], totals[i]))
                totals[i] = 0
    assert max(seen) >= 10, "DemonAttack pays at least 10 for a hit"
    assert scores and all(score == total for score, total in scores)


def test_truncation_is_told_apart_from_termination():
    env = make("demon_attack", max_frames=200)
    dones_seen = truncations = 0
    for _, _, dones, infos in play(env, 200):
        for i in np.flatnonzero(dones):
            dones_seen += 1
            truncations += infos[i]["TimeLimit.truncated"]
            if infos[i]["TimeLimit.truncated"]:
                assert "episode" in infos[i] and infos[i]["episode"]["l"] <= 51
    assert truncations >= 4
    for _, _, dones, infos in play(make("breakout"), 200):
        assert not any(infos[i]["TimeLimit.truncated"] for i in np.flatnonzero(dones))


def test_the_terminal_observation_is_the_last_frame_of_the_episode():
    """Its three older frames are the three newest ones seen before; the observation itself begins something new."""
    for rom, options in (("breakout", {}), ("demon_attack", {"max_frames": 200})):
        env, before, checked = make(rom, **options), None, 0
        for observations, _, dones, infos in play(env, 150):
            for i in np.flatnonzero(dones):
                if before is not None:
                    np.testing.assert_array_equal(infos[i]["terminal_observation"][:3], before[i][1:])
                    checked += 1
                if "episode" in infos[i]:
                    assert not np.array_equal(infos[i]["terminal_observation"], observations[i])
            before = observations.copy()
        assert checked >= 4


def test_the_same_seed_gives_the_same_result_and_another_one_does_not():
    def run(seed):
        env = AtariVecEnv("demon_attack", 2, num_threads=1, seed=seed)
        return np.stack([observations.copy() for observations, *_ in play(env, 100)])

    assert np.array_equal(run(1), run(1)) and not np.array_equal(run(1), run(2))


def test_observations_of_earlier_steps_are_not_overwritten():
    kept = [observations for observations, *_ in play(make("demon_attack"), 20)]
    copies = [observations.copy() for observations, *_ in play(make("demon_attack"), 20)]
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))


@pytest.mark.parametrize("rom", atari_games().values())
def test_every_game_resets_and_steps(rom):
    env = AtariVecEnv(rom, 1, num_threads=1, seed=0)
    assert env.observation_space.contains(env.reset()[0])
    for observations, rewards, dones, infos in play(env, 5):
        assert env.observation_space.contains(observations[0])
        assert rewards.shape == dones.shape == (1,) and len(infos) == 1
    env.close()


@pytest.mark.parametrize("rom", ["DemonAttack", "combat", "pacmann"])
def test_a_wrong_rom_is_one_clear_sentence(rom):
    with pytest.raises(ValueError, match=f"for one player, .* got '{rom}'"):
        make(rom)


def test_it_trains_and_reports_whole_games_without_a_monitor():
    env = make("breakout", 4, max_frames=400)
    assert env.env_is_wrapped(Monitor) == [True] * 4
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 8}
    model = RecurrentPPO("CnnRimsPolicy", env, n_steps=64, batch_size=128, n_epochs=1, policy_kwargs=kwargs)
    model.learn(768)
    assert len(model.ep_info_buffer) >= 4 and all(50 < episode["l"] <= 101 for episode in model.ep_info_buffer)
    assert env.get_images()[0].shape == (84, 84, 3)
