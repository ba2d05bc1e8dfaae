"""The efference copy: what the agent did and got is part of what it sees next."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from rims_rl.agents import RecurrentPPO
from rims_rl.envs import EfferenceCopy
from tests.helpers.agents import Anything, box


@pytest.mark.parametrize(
    "action_space",
    [spaces.Discrete(3), spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), box(2)],
    ids=str,
)
@pytest.mark.parametrize("observation_space", [box(4), spaces.Dict({"a": box(2), "b": spaces.Discrete(3)})], ids=str)
def test_the_next_observation_holds_the_action_and_the_reward(observation_space, action_space):
    env = EfferenceCopy(Anything(observation_space, action_space))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert observation["reward"] == 0
    for _ in range(5):
        action = env.action_space.sample()
        observation, reward, *_ = env.step(action)
        assert env.observation_space.contains(observation)
        start = action_space.start if isinstance(action_space, spaces.Discrete) else 0
        np.testing.assert_array_equal(observation["action"], action - start)
        assert observation["reward"] == np.float32(reward)
    assert set(observation) >= (
        set(observation_space) if isinstance(observation_space, spaces.Dict) else {"observation"}
    )


def test_at_the_first_step_there_is_no_previous_action():
    env = EfferenceCopy(gym.make("CartPole-v1"))
    assert env.reset()[0]["action"] == 2
    env.step(1)
    assert env.reset()[0]["action"] == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # about unbounded observations, which rewards are
def test_it_passes_gymnasiums_checker_and_trains():
    check_env(EfferenceCopy(gym.make("Pendulum-v1")), skip_render_check=True)
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 4}
    env = EfferenceCopy(gym.make("CartPole-v1"))
    model = RecurrentPPO("MultiInputRimsPolicy", env, n_steps=16, batch_size=16, n_epochs=1, policy_kwargs=kwargs)
    assert model.learn(32).num_timesteps == 32


def test_a_taken_key_and_an_unknown_action_space_are_named():
    with pytest.raises(ValueError, match="already has the key 'action'"):
        EfferenceCopy(Anything(spaces.Dict({"action": box(2)}), box(1)))
    with pytest.raises(ValueError, match="got Tuple"):
        EfferenceCopy(Anything(box(2), spaces.Tuple([box(1)])))
