"""Small environments for tests."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Cue(gym.Env):
    """A cue at the first step, the answer at the last one: reward 1 for naming the cue, else 0. Chance is 1/2.

    The observation is (cue or 0, 1 at the last step); what is done before the last step does not matter.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=8):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action):
        self.t += 1
        last = self.t == self.length - 1
        observation = np.array([0, float(last)], np.float32)
        if self.t < self.length:
            return observation, 0.0, False, False, {}
        return observation, float(action == self.cue), True, False, {}


class Anything(gym.Env):
    """Random observations and rewards for any pair of spaces; episodes of about ten steps, some of them truncated."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        end = self.np_random.random()
        return self.observation_space.sample(), float(self.np_random.normal()), end < 0.1, end > 0.95, {}


def image(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def box(*shape):
    return spaces.Box(-1, 1, shape, np.float32)
