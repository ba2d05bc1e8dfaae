"""Pick-up tasks stepped together, compared with the same tasks in Stable-Baselines3's DummyVecEnv."""

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pygame
import pytest
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.envs.pickup.pickup_vector import PickupVecEnv
from rims_rl.envs.registration import KNOWN, PICKUPS
from rims_rl.envs.variants import settings_of

NUM_ENVS = 8
OTHER_ROOMS = [
    {"strict": False},
    {"strict": False, "num_distractors": 4, **PICKUPS["NovelShape"]},
    {"room_size": 4, "view": 3, "num_distractors": 1, "max_steps": 5},
    {"room_size": 9, "view": 7, "num_distractors": 12, "max_steps": 15},
    {"room_size": 5, "view": 11, "num_distractors": 0, "strict": False},
]


def both(name, image="symbolic", **kwargs):
    envs = [resolve(name, observation=image, vec_env=kind) for kind in ("dummy", None)]
    return [make_envs(env, NUM_ENVS, 3, **kwargs).unwrapped for env in envs]


def actions_of(envs, steps):
    """Random, but often forward and picking up, so that there is something to compare."""
    count = envs.action_space.n
    odds = np.array([1, 1, 3, 2, 1][:count], float)
    return np.random.default_rng(0).choice(count, (steps, NUM_ENVS), p=odds / odds.sum())


def assert_same_observations(expected, got):
    assert set(expected) == set(got)
    for key, value in expected.items():
        assert got[key].dtype == value.dtype and np.array_equal(got[key], value)


def assert_same_steps(theirs, ours, steps):
    """Both are stepped with the same actions. Returns how often episodes ended in which way."""
    outcomes = {"success": 0, "wrong pick": 0, "time-out": 0}
    for actions in actions_of(ours, steps):
        expected, rewards, dones, infos = theirs.step(actions)
        got, our_rewards, our_dones, our_infos = ours.step(actions)
        assert_same_observations(expected, got)
        assert np.array_equal(our_rewards, rewards) and np.array_equal(our_dones, dones)
        assert our_rewards.dtype == rewards.dtype and our_dones.dtype == dones.dtype
        for info, our_info in zip(infos, our_infos, strict=True):
            if "episode" in info:
                outcomes[info["outcome"]] += 1
                assert_same_observations(info.pop("terminal_observation"), our_info.pop("terminal_observation"))
                assert info["episode"].pop("t") > 0 and our_info["episode"].pop("t") > 0
            assert our_info == info and all(type(our_info[key]) is type(info[key]) for key in info)
    return outcomes


@pytest.fixture
def register():
    """Registers a room with these options, and gives its id."""
    gym.register("Test/Pickup-v0", "rims_rl.envs.pickup.pickup:Pickup")

    def options(**kwargs):
        gym.registry["Test/Pickup-v0"].kwargs = {"targets": KNOWN, **kwargs}
        return "Test/Pickup-v0"

    yield options
    del gym.registry["Test/Pickup-v0"]


@pytest.mark.parametrize("variant", PICKUPS)
def test_every_variant_gives_the_same_as_one_by_one(variant):
    theirs, ours = both(f"RimsRL/Pickup-{variant}-v0")
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert_same_observations(theirs.reset(), ours.reset())
    outcomes = assert_same_steps(theirs, ours, 300)
    assert min(outcomes.values()) > 3, outcomes


@pytest.mark.parametrize("options", OTHER_ROOMS)
def test_so_do_other_rooms_and_views_and_objects_that_are_dropped_again(register, options):
    theirs, ours = both(register(**options))
    assert_same_observations(theirs.reset(), ours.reset())
    outcomes = assert_same_steps(theirs, ours, 300)
    assert outcomes["success"] > 3 and outcomes["time-out"] > 3


def test_so_do_pixels():
    for variant in ("NewColour", "NewShape"):
        theirs, ours = both(f"RimsRL/Pickup-{variant}-v0", "rgb")
        assert_same_observations(theirs.reset(), ours.reset())
        assert_same_steps(theirs, ours, 60)


def test_a_new_seed_starts_all_over():
    theirs, ours = both("RimsRL/Pickup-Known-v0")
    first = ours.reset()
    assert_same_observations(theirs.reset(), first)
    assert_same_steps(theirs, ours, 20)
    assert_same_observations(theirs.reset(), ours.reset())  # in the middle of episodes, and without a seed
    assert_same_steps(theirs, ours, 20)
    assert ours.seed(3) == theirs.seed(3)
    assert_same_observations(first, ours.reset())


def test_what_was_returned_does_not_change_in_the_next_step():
    ours = both("RimsRL/Pickup-Known-v0")[1]
    returned = [ours.reset()]
    copies = [{key: value.copy() for key, value in returned[0].items()}]
    for actions in actions_of(ours, 40):
        observations, _, _, infos = ours.step(actions)
        for each in (observations, *(info["terminal_observation"] for info in infos if "episode" in info)):
            returned.append(each)
            copies.append({key: value.copy() for key, value in each.items()})
    for each, copy in zip(returned, copies, strict=True):
        assert_same_observations(copy, each)


def test_who_looks_at_an_environment_sees_it_as_it_is(register):
    theirs, ours = both(register(strict=False))
    theirs.reset(), ours.reset()
    carried = 0
    for _ in range(20):
        assert_same_steps(theirs, ours, 3)
        for name in ("agent_dir", "step_count", "mission", "settings", "image", "metadata", "render_mode"):
            assert ours.get_attr(name) == theirs.get_attr(name)
        np.testing.assert_array_equal(ours.get_attr("agent_pos"), theirs.get_attr("agent_pos"))
        assert ours.env_method("pprint_grid") == theirs.env_method("pprint_grid")
        things = [[thing and thing.encode() for thing in envs.get_attr("carrying")] for envs in (theirs, ours)]
        assert things[0] == things[1]
        carried += sum(thing is not None for thing in things[0])
    np.testing.assert_array_equal(ours.render(), theirs.render())
    assert carried and ours.env_is_wrapped(Monitor) == [True] * NUM_ENVS


@pytest.mark.filterwarnings("ignore:The system font")
def test_a_window_shows_every_step(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown = []
    for kind in ("dummy", None):
        envs = make_envs(resolve("PickupKnown", vec_env=kind), 1, 0, render_mode="human")
        envs.reset()
        for action in (2, 0, 2, 1):
            envs.step(np.array([action]))
            shown.append(pygame.surfarray.array3d(envs.get_attr("window")[0]))
        envs.close()
    np.testing.assert_array_equal(shown[:4], shown[4:])
    assert any((before != after).any() for before, after in pairwise(shown[:4]))


def test_only_pick_up_tasks_are_stepped_together():
    env = resolve("PickupNewShape", observation="rgb")
    ours = make_envs(env, 2, 0)
    other = make_envs(resolve("BabyAI-GoToLocal-v0"), 2, 0)
    assert type(ours.unwrapped) is PickupVecEnv and type(other.unwrapped) is DummyVecEnv
    ours.reset()
    theirs = make_envs(env._replace(vec_env="dummy"), 2, 0)
    theirs.reset()
    assert settings_of(env, ours) == settings_of(env, theirs)
