"""Gymnasium's vector environments, in each way to begin the next episode, do what single ones do."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.agents import RecurrentPPO
from rims_rl.envs.gymnasium_vector import GymnasiumVecEnv
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.training.train import TrainOptions, train
from tests.helpers.verbs import evaluate_run, user_error


class Counting(gym.Env):
    """Observes how many steps and episodes there were; every second episode is cut off."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Discrete(3)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes, self.steps = self.episodes + 1, 0
        return np.array([self.episodes, 0.0]), {}

    def step(self, action):
        self.steps += 1
        end = self.steps == 3
        cut = bool(self.episodes % 2)
        return np.array([self.episodes, self.steps], float), float(action), end and not cut, end and cut, {}


gym.register("Counting-v0", entry_point=Counting)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_steps_are_those_of_stable_baselines(mode):
    many = gym.make_vec("Counting-v0", 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    ours, theirs = GymnasiumVecEnv(many, 0), DummyVecEnv([Counting, Counting])
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for step in range(10):
        actions = np.array([step % 3, 1])
        got, expected = ours.step(actions), theirs.step(actions)
        for mine, his in zip(got[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(mine, his)
        for mine, his in zip(got[3], expected[3], strict=True):
            for key in ("terminal_observation", "TimeLimit.truncated"):
                np.testing.assert_array_equal(mine.get(key, False), his.get(key, False))
    assert got[3][0] == {}


class LikeEnvPool:
    """What EnvPool's environments have, and no more: a length, the spaces of one, and a reset without a seed."""

    metadata, render_mode = {"render_modes": []}, None
    observation_space, action_space = Counting.observation_space, Counting.action_space

    def __init__(self, envs):
        self.step, self.close, self._envs = envs.step, envs.close, envs

    def __len__(self):
        return self._envs.num_envs

    def reset(self, env_id=None):
        return self._envs.reset()


@pytest.mark.parametrize("like", [lambda envs: envs, LikeEnvPool], ids=["Gymnasium", "EnvPool"])
def test_a_step_that_only_starts_an_episode_is_one_of_its_own(like):
    ours = GymnasiumVecEnv(like(gym.make_vec("Counting-v0", 1, vectorization_mode="sync")), 0)
    ours.reset()
    steps = [ours.step(np.array([2])) for _ in range(8)]
    assert [bool(step[2][0]) for step in steps] == [False, False, True, True, False, False, True, True]
    assert [float(step[1][0]) for step in steps] == [2, 2, 2, 0, 2, 2, 2, 0]
    assert steps[3][0].tolist() == [[2.0, 0.0]]  # the real beginning
    assert [step[3][0].get("episode", {}).get("r") for step in steps] == [None, None, 6, None, None, None, 6, None]
    assert steps[2][3][0]["terminal_observation"].tolist() == [1.0, 3.0]
    assert [step[3][0].get("TimeLimit.truncated") for step in (steps[2], steps[6])] == [True, False]


def test_cartpole_is_trained_on_its_own_vector_environment_and_played_there(tmp_path):
    settings = {
        "num_rims": 3,
        "num_active": 2,
        "rim_size": 4,
        "n_envs": 4,
        "n_steps": 16,
        "batch_size": 64,
        "n_epochs": 1,
    }
    how = {
        "n_timesteps": 128,
        "eval_freq": 64,
        "eval_episodes": 2,
        "logdir": tmp_path,
        "threads": 1,
        "settings": settings,
    }
    run = train(TrainOptions(env="CartPole-v1", vec_env="vector", **how)).folder
    result = evaluate_run(run, 4)
    assert result.scores == [float(length) for length in result.lengths] and min(result.lengths) > 5
    envs = make_envs(resolve("CartPole-v1", vec_env="vector"), 2, 0).unwrapped
    assert "CartPoleVectorEnv" in str(envs._envs.unwrapped)


def test_a_policy_takes_a_vector_environment_in_python():
    envs = GymnasiumVecEnv(gym.make_vec("CartPole-v1", 2), 0)
    model = RecurrentPPO("MlpRimsPolicy", envs, n_steps=8, batch_size=16, policy_kwargs={"rim_size": 4})
    assert model.learn(32).num_timesteps == 32


def test_wrappers_are_not_for_vector_environments():
    with user_error("--vec-env vector makes no wrappers, and MiniGrid-Empty-5x5-v0 needs some"):
        make_envs(resolve("MiniGrid-Empty-5x5-v0", vec_env="vector"), 1, 0)
