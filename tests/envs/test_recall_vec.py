"""Recall tasks stepped together, compared with the same tasks in Stable-Baselines3's DummyVecEnv."""

import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.envs.recall.recall_vector import RecallVecEnv
from rims_rl.envs.registration import RECALLS
from rims_rl.envs.variants import settings_of

NUM_ENVS = 8


def both(variant, seed=3, **kwargs):
    name = f"RimsRL/Recall-{variant}-v0" if variant else "RimsRL/Recall-v0"
    return [
        make_vec_env(name, NUM_ENVS, seed=seed, env_kwargs=kwargs, vec_env_cls=kind)
        for kind in (DummyVecEnv, RecallVecEnv)
    ]


def assert_same_step(theirs, ours, actions):
    """Returns the outcomes of the episodes that ended."""
    expected, rewards, dones, infos = theirs.step(actions)
    got, our_rewards, our_dones, our_infos = ours.step(actions)
    for one, other in ((expected, got), (rewards, our_rewards), (dones, our_dones)):
        assert other.dtype == one.dtype and np.array_equal(other, one)
    for info, our_info in zip(infos, our_infos, strict=True):
        if "episode" in info:
            assert np.array_equal(info.pop("terminal_observation"), our_info.pop("terminal_observation"))
            assert info["episode"].pop("t") > 0 and our_info["episode"].pop("t") > 0
        assert our_info == info and all(type(our_info[key]) is type(info[key]) for key in info)
    return [info["outcome"] for info in infos if "episode" in info]


@pytest.mark.parametrize("variant", RECALLS)
def test_every_number_is_the_same_as_in_each_environment_by_itself(variant):
    theirs, ours = both(variant)
    assert np.array_equal(theirs.reset(), ours.reset())
    rng, outcomes = np.random.default_rng(0), []
    for _ in range(900 if "Long" in variant else 200):
        outcomes += assert_same_step(theirs, ours, rng.integers(4, size=NUM_ENVS))
    assert set(outcomes) == {"success", "wrong answer"} and len(outcomes) >= 2 * NUM_ENVS


def test_a_reset_in_the_middle_of_episodes_begins_new_ones():
    theirs, ours = both("")
    theirs.reset(), ours.reset()
    for _ in range(2):
        for _ in range(4):
            assert_same_step(theirs, ours, np.zeros(NUM_ENVS, int))
        for envs in (theirs, ours):
            envs.seed(11)
        assert np.array_equal(theirs.reset(), ours.reset())


def test_observations_that_were_returned_stay_as_they_were():
    _, ours = both("")
    first = ours.reset()
    kept = first.copy()
    second, *_ = ours.step(np.zeros(NUM_ENVS, int))
    assert np.array_equal(first, kept) and not np.shares_memory(first, second)


def test_pictures_and_attributes_are_those_of_now():
    theirs, ours = both("Loud", render_mode="rgb_array")
    theirs.reset(), ours.reset()
    for step in range(1, 5):
        assert_same_step(theirs, ours, np.zeros(NUM_ENVS, int))
        assert ours.get_attr("step_count") == [step] * NUM_ENVS
        assert all(np.array_equal(*pair) for pair in zip(theirs.get_images(), ours.get_images(), strict=True))


def test_make_envs_takes_it_and_says_with_which_settings_it_is_played():
    env = resolve("RecallNovelLoud")
    envs = make_envs(env, 2, 0)
    envs.reset()
    assert isinstance(envs.unwrapped, RecallVecEnv)
    assert settings_of(env, envs) == {
        "id": "RimsRL/Recall-NovelLoud-v0", "distractors": list(range(12, 20)), "delay": [5, 20], "loudness": 3.0
    }  # fmt: skip
