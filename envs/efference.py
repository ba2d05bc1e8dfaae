"""The agent's own last action and reward, as part of what it observes."""

from __future__ import annotations

from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class EfferenceCopy(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Adds the previous action and reward to the observation: the paper's efference copy.

    The observation becomes a Dict, or stays one, with two more keys. With ``MultiInputRimsPolicy`` each key is an
    element that RIMs attend to.

    - ``"action"``: the previous action. At the beginning of an episode it is zeros; a Discrete action, counted from 0,
      has one value more than the action space for that.
    - ``"reward"``: the previous reward, a vector of one number; 0 at the beginning of an episode.

    An observation that is not a Dict is kept under the key ``"observation"``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        inner = env.observation_space
        self._is_dict = isinstance(inner, spaces.Dict)
        keys = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"observation": inner}
        taken = {"action", "reward"} & set(keys)
        if taken:
            raise ValueError(f"the observation already has the key {taken.pop()!r}; rename it before EfferenceCopy")
        action = env.action_space
        if isinstance(action, spaces.Discrete):
            seen: spaces.Space[Any] = spaces.Discrete(int(action.n) + 1)
            self._first: Any = int(action.n)
        elif isinstance(action, spaces.Box):
            # zero, the value at the beginning, may lie outside the bounds
            low, high = np.minimum(action.low, 0), np.maximum(action.high, 0)
            seen = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
            self._first = np.zeros(action.shape, np.float32)
        elif isinstance(action, spaces.MultiDiscrete | spaces.MultiBinary):
            seen, self._first = action, np.zeros(action.shape, action.dtype)
        else:
            raise ValueError(f"EfferenceCopy takes Discrete, MultiDiscrete, MultiBinary and Box actions, got {action}")
        reward = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict({**keys, "action": seen, "reward": reward})

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return self._with(observation, copy(self._first), 0.0), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with(observation, self._in_space(action), reward), reward, terminated, truncated, info

    def _in_space(self, action: Any) -> Any:
        """The action as the observation space wants it."""
        if isinstance(self.env.action_space, spaces.Discrete):
            return int(action) - int(self.env.action_space.start)
        return np.asarray(action, self._first.dtype)

    def _with(self, observation: Any, action: Any, reward: Any) -> dict[str, Any]:
        keys = observation if self._is_dict else {"observation": observation}
        return {**keys, "action": action, "reward": np.array([reward], np.float32)}
