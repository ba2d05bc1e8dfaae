"""An environment that nobody can look at."""

import gymnasium as gym
import numpy as np


class Unseen(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}


class Many(Unseen):
    """Which has several numbers as its action, besides."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.zeros((64, 64, 3), np.uint8)
