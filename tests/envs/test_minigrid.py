"""Observations of MiniGrid and BabyAI for Stable-Baselines3, compared with Minigrid's own."""

import gymnasium as gym
import minigrid  # noqa: F401  registers its environments
import numpy as np
import pytest
from minigrid.core.constants import COLOR_NAMES
from minigrid.minigrid_env import MiniGridEnv
from minigrid.wrappers import RGBImgPartialObsWrapper
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.preprocessing import is_image_space

from rims_rl.envs.make import make_envs
from rims_rl.envs.minigrid.missions import VOCABULARY, encode_mission
from rims_rl.envs.minigrid.new_objects import SHAPES
from rims_rl.envs.minigrid.observation import MinigridObservation
from rims_rl.envs.names import resolve
from rims_rl.envs.registration import PICKUPS

OURS = [f"RimsRL/Pickup-{variant}-v0" for variant in PICKUPS]
THEIRS = [
    name
    for name, spec in gym.registry.items()
    if str(spec.entry_point).startswith("minigrid.") and "WFC" not in name  # those take seconds to make
]


def make(name, **kwargs):
    return gym.make(name, disable_env_checker=True, **kwargs)


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize("name", OURS + THEIRS)
def test_every_environment_is_seen_as_minigrid_shows_it(name, capsys):
    """Numbers, pixels and missions, over seeds and steps."""
    env = make(name)
    rgb, theirs = MinigridObservation(env, "rgb"), RGBImgPartialObsWrapper(env, 8)
    actions = np.random.default_rng(0)
    for seed in range(3):
        observation, _ = rgb.reset(seed=seed)
        for step in range(12):
            expected = MiniGridEnv.gen_obs(env.unwrapped)
            ours = env.unwrapped.gen_obs()
            np.testing.assert_array_equal(ours["image"], expected["image"])
            assert ours["mission"] == expected["mission"] and ours["direction"] == expected["direction"]
            if step % 4 == 0:  # theirs is slow
                pixels = theirs.observation(expected)["image"]
                np.testing.assert_array_equal(observation["image"], pixels.transpose(2, 0, 1))
            assert rgb.observation_space.contains(observation)
            words = [VOCABULARY[number - 1] for number in observation["mission"] if number]
            assert words == expected["mission"].lower().replace(",", "").split()
            observation, _, terminated, truncated, _ = rgb.step(actions.integers(env.action_space.n))
            if terminated or truncated:
                break


def test_every_object_colour_and_state_looks_as_in_minigrid_also_when_carried():
    """Each in turn before the agent and in its hands."""
    from minigrid.core.world_object import Door

    env = make("RimsRL/Pickup-Known-v0")
    ours, theirs = MinigridObservation(env, "rgb"), RGBImgPartialObsWrapper(env, 8)
    ours.reset(seed=0)
    grid = env.unwrapped
    grid.agent_pos, grid.agent_dir = (1, 1), 0
    for colour in [*COLOR_NAMES, "cyan"]:
        things = [make_one(colour) for make_one in SHAPES.values()]
        for thing in [*things, Door(colour), Door(colour, is_open=True), Door(colour, is_locked=True)]:
            grid.grid.set(2, 1, thing)
            grid.carrying = thing if thing in things else None
            pixels = theirs.observation(grid.gen_obs())["image"].transpose(2, 0, 1)
            np.testing.assert_array_equal(ours._with_arrays(grid.gen_obs())["image"], pixels)


@pytest.mark.parametrize("image", ["symbolic", "rgb"])
@pytest.mark.parametrize("name", ["RimsRL/Pickup-NewShape-v0", "BabyAI-PickupDist-v0", "MiniGrid-MultiRoom-N2-S4-v0"])
def test_stable_baselines3_accepts_the_observations(name, image):
    check_env(MinigridObservation(make(name), image, direction=True), warn=False)


def test_symbolic_images_are_not_divided_by_255():
    space = MinigridObservation(make("BabyAI-GoToLocal-v0")).observation_space
    assert not is_image_space(space["image"]) and space["image"].shape == (7, 7, 3)
    assert space["image"].high[0, 0].tolist() == [11, 6, 2] and set(space) == {"image", "mission"}
    space = MinigridObservation(make("RimsRL/Pickup-Known-v0"), "rgb").observation_space
    assert is_image_space(space["image"]) and space["image"].shape == (3, 40, 40)


def test_all_variants_of_the_task_have_one_observation_space():
    """So that a policy trained on one plays the others."""
    first, *others = (MinigridObservation(make(name)).observation_space for name in OURS)
    assert all(space == first for space in others) and first["mission"].shape == (5,)


@pytest.mark.parametrize("name", ["MultiRoom-N2-S4-v0", "MultiRoom-N4-S5-v1", "MultiRoom-N6-v0"])
def test_multiroom_tells_where_the_goal_is(name):
    envs = make_envs(resolve(f"MiniGrid-{name}"), 1, 3).unwrapped
    observation = envs.reset()
    assert set(observation) == {"direction", "goal", "image", "mission"}
    env = envs.envs[0].unwrapped
    for _ in range(5):
        x, y = env.agent_pos + observation["goal"][0] * (env.width, env.height)
        assert env.grid.get(round(float(x)), round(float(y))).type == "goal"
        assert observation["direction"][0] == env.agent_dir
        observation, *_ = envs.step(np.array([env.actions.forward if env.step_count % 2 else env.actions.left]))
    assert len(env.rooms) == int(name.split("-")[1][1:])


def test_the_end_of_an_episode_says_whether_it_succeeded():
    """Reaching the goal of an empty room in the last step that there is, and one step late."""
    for max_steps, success in ((3, True), (2, False)):
        env = MinigridObservation(make("MiniGrid-Empty-5x5-v0", max_steps=max_steps))
        env.reset(seed=0)
        env.unwrapped.agent_pos, env.unwrapped.agent_dir = (2, 2), 0
        ends = [env.step(action) for action in (2, 1, 2)[:max_steps]]
        _, reward, *flags, info = ends[-1]
        assert flags == [success, not success] and info["is_success"] is success and (reward > 0) == success


def test_mistakes_are_one_sentence():
    with pytest.raises(ValueError, match="unknown word 'juggle'"):
        encode_mission("juggle the red ball", 5)
    with pytest.raises(ValueError, match="has 5 words, and there is room for 4"):
        encode_mission("pick up the red ball", 4)
    with pytest.raises(ValueError, match="image must be 'symbolic' or 'rgb', got 'grey'"):
        MinigridObservation(make("BabyAI-GoToLocal-v0"), "grey")
    with pytest.raises(ValueError, match="takes MiniGrid and BabyAI environments"):
        MinigridObservation(make("CartPole-v1"))
    with pytest.raises(ValueError, match="BabyAI-GoToLocal-v0 has no goal"):
        MinigridObservation(make("BabyAI-GoToLocal-v0"), goal=True).reset(seed=0)
