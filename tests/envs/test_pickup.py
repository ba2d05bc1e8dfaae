"""The pick-up task: who lies beside whom, how episodes end, and that every variant can be solved."""

import subprocess
import sys
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minigrid.core.constants import COLOR_NAMES
from minigrid.utils.baby_ai_bot import BabyAIBot

import rims_rl.envs  # noqa: F401  registers them
from rims_rl.envs.pickup.pickup import Pickup
from rims_rl.envs.registration import KNOWN, PICKUPS

LEFT, RIGHT, FORWARD, PICK, DROP = range(5)


def make(variant="Known", **kwargs):
    return gym.make(f"RimsRL/Pickup-{variant}-v0", **kwargs).unwrapped


def objects(env):
    """The target's (shape, colour), and those of the distractors."""
    found = [(cell.type, cell.color) for cell in env.grid.grid if cell is not None and cell.type != "wall"]
    target = (env.instrs.desc.type, env.instrs.desc.color)
    found.remove(target)
    return target, found


def layouts(variant, resets):
    env = make(variant)
    env.reset(seed=0)
    for _ in range(resets):
        env.reset()
        yield objects(env)


def bot_solves(env, seed):
    env.reset(seed=seed)
    bot, done, info = BabyAIBot(env), False, {}
    while not done:
        _, _, terminated, truncated, info = env.step(bot.replan())
        done = terminated or truncated
    return info["is_success"]


def face(env, pair):
    """Put the agent before an object, looking at it."""
    x, y = next(cell.cur_pos for cell in env.grid.grid if cell and (cell.type, cell.color) == pair)
    places = [(x - 1, y), (x, y - 1), (x + 1, y), (x, y + 1)]
    env.agent_dir, env.agent_pos = next((d, at) for d, at in enumerate(places) if env.grid.get(*at) is None)


@pytest.mark.parametrize("variant", PICKUPS)
def test_the_bot_solves_every_variant(variant):
    env = make(variant)
    assert sum(bot_solves(env, seed) for seed in range(40)) >= 39


@pytest.mark.parametrize("variant", PICKUPS)
def test_gymnasium_accepts_every_variant(variant):
    check_env(make(variant), skip_render_check=True)


def test_training_and_novel_objects_share_no_pair():
    trained, pairs = set(), {}
    for target, distractors in layouts("Known", 1000):
        trained |= {target, *distractors}
        assert len(distractors) == 2 and target not in distractors, "or the mission would be ambiguous"
    assert trained == set(KNOWN)
    for variant in PICKUPS:
        if "Novel" in variant or "New" in variant:
            seen = list(layouts(variant, 300))
            pairs[variant] = {pair for _, distractors in seen for pair in distractors}
            assert not pairs[variant] & trained and {target for target, _ in seen} == trained
    assert {colour for _, colour in pairs["NovelColour"]} == {"purple", "yellow"}
    assert {shape for shape, _ in pairs["NovelShape"]} == {"box"}
    assert {colour for _, colour in pairs["NewColour"]} == {"cyan"} and {shape for shape, _ in pairs["NewShape"]} == {
        "star"
    }
    assert "cyan" not in COLOR_NAMES, "MiniGrid's own environments must not draw it"


def test_controls_share_no_colour_or_shape_with_the_target():
    for variant, part in (("ControlShape", 0), ("ControlColour", 1)):
        for target, distractors in layouts(variant, 500):
            assert set(distractors) <= set(KNOWN)
            assert target[part] not in [pair[part] for pair in distractors]
    alike = Counter(t[1] in [colour for _, colour in d] for t, d in layouts("Known", 500))
    assert alike[True] > 100, "unlike in training"


def test_more_means_four_distractors():
    for variant in ("More", "MoreNovelColour", "MoreNovelShape"):
        assert {len(distractors) for _, distractors in layouts(variant, 50)} == {4}


def test_a_right_pick_a_wrong_one_and_a_time_out_are_told_apart():
    env = make()
    env.reset(seed=0)
    target, distractors = objects(env)
    face(env, target)
    _, reward, *ends, info = env.step(PICK)
    assert ends == [True, False] and reward == pytest.approx(1 - 0.9 / 36)
    assert info == {"outcome": "success", "is_success": True}

    env.reset(seed=0)
    face(env, distractors[0])
    _, reward, *ends, info = env.step(PICK)
    assert ends == [True, False] and reward == 0 and info == {"outcome": "wrong pick", "is_success": False}

    env.reset(seed=0)
    for _ in range(35):
        assert env.step(LEFT)[2:] == (False, False, {})
    _, reward, *ends, info = env.step(LEFT)
    assert ends == [False, True] and reward == 0 and info == {"outcome": "time-out", "is_success": False}


def test_success_in_the_last_step_is_not_a_truncation():
    env = make()
    env.reset(seed=0)
    for _ in range(35):
        env.step(LEFT)
    face(env, objects(env)[0])
    _, reward, *ends, info = env.step(PICK)
    assert ends == [True, False] and reward == pytest.approx(0.1) and info["outcome"] == "success"


def test_without_strict_a_wrong_pick_can_be_dropped_again():
    env = make(strict=False)
    env.reset(seed=0)
    target, distractors = objects(env)
    face(env, distractors[0])
    assert env.step(PICK)[2:] == (False, False, {}) and env.carrying.color == distractors[0][1]
    env.step(DROP)
    assert env.carrying is None
    face(env, target)
    assert env.step(PICK)[4]["is_success"]
    assert make().action_space.n == 4 and env.action_space.n == 5


def test_the_same_seed_gives_the_same_layout():
    first, second = make("More"), make("More")
    hashes = []
    for seed in range(20):
        first.reset(seed=seed), second.reset(seed=seed)
        assert first.hash() == second.hash() and first.mission == second.mission
        hashes.append(first.hash())
    assert len(set(hashes)) == 20


def test_the_room_is_partially_observed():
    env = make()
    seen = []
    for seed in range(200):
        observation, _ = env.reset(seed=seed)
        cell = next(c for c in env.grid.grid if c and (c.type, c.color) == objects(env)[0])
        seen.append((observation["image"].reshape(-1, 3) == cell.encode()).all(1).any())
    assert 0.2 < np.mean(seen) < 0.9


def test_objects_lie_in_every_cell_of_the_room():
    env, places = make(), set()
    for seed in range(100):
        env.reset(seed=seed)
        places |= {tuple(cell.cur_pos) for cell in env.grid.grid if cell is not None and cell.type != "wall"}
    assert len(places) == 4 * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": []}, "targets must hold at least one pair such as"),
        ({"distractors": []}, "distractors must hold at least one pair"),
        ({"targets": [("box", "red")]}, r"targets must be pairs of a shape \(key, ball\).*got \('box', 'red'\)"),
        ({"distractors": [("key", "pink")]}, r"distractors must be pairs .*got \('key', 'pink'\)"),
        ({"distractors": [("key", "red"), ("box", "red")]}, r"\('key', 'red'\) is in both; leave distractors out"),
        ({"num_distractors": 8}, "a room of size 6 holds a target and at most 7 distractors, got num_distractors=8"),
        ({"num_distractors": -1}, "num_distractors must be at least 0, got -1"),
        ({"unlike": "size"}, "unlike must be 'colour', 'shape' or None, got 'size'"),
        ({"targets": [("key", "red")]}, r"holds no object to put beside the target \('key', 'red'\)"),
        ({"targets": [("key", "red"), ("ball", "red")], "unlike": "colour"}, "no object of another colour"),
        ({"view": 4}, "view an odd number from 3, got room_size=6, view=4"),
    ],
)
def test_what_cannot_be_is_one_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        Pickup(**{"targets": KNOWN, **options})


def test_gym_finds_them_by_module_without_torch():
    code = (
        "import sys, gymnasium as gym; env = gym.make('rims_rl.envs:RimsRL/Pickup-Known-v0'); env.reset(seed=0); "
        "assert 'torch' not in sys.modules and env.spec.to_json()"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_it_tells_whether_the_target_and_a_distractor_are_in_view():
    env, told = make(), set()
    for seed in range(40):
        env.reset(seed=seed)
        target, distractors = objects(env)
        there = [cell for cell in env.grid.grid if cell is not None and cell.type != "wall"]
        seen = [
            (cell.type, cell.color) for cell in there if env.in_view(*cell.cur_pos)
        ]  # Minigrid's; nothing is hidden
        told.add(env.objects_in_view())
        assert env.objects_in_view() == (target in seen, any(pair in seen for pair in distractors))
    assert len(told) == 4
