"""Which spaces agents can have."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


def check_spaces(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """A ValueError that says in one sentence what is wrong with a space, if no agent can have it.

    Stable-Baselines3 says most of this too, but as assertions, as tracebacks from deep inside, or during training.
    """
    if isinstance(observation_space, spaces.Dict):
        if not observation_space.spaces:
            raise ValueError("a Dict observation needs at least one key, got none")
        for key, part in observation_space.spaces.items():
            _check(part, f"observation {key!r}")
    else:
        _check(observation_space, "observations")
    _check(action_space, "actions")
    if isinstance(action_space, spaces.Box) and not action_space.is_bounded():
        raise ValueError(
            f"actions must have a finite lower and upper bound, got {action_space}; give them bounds in the "
            "environment, or with gymnasium.wrappers.TransformAction"
        )
    if isinstance(action_space, spaces.MultiBinary) and len(action_space.shape) > 1:
        raise ValueError(f"MultiBinary actions must be one row, got {action_space}; flatten them")


def _check(space: spaces.Space[Any], what: str) -> None:
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        dict_too = " or a Dict of these" if what == "observations" else ""
        raise ValueError(
            f"{what} must be a Box, Discrete, MultiDiscrete or MultiBinary space{dict_too}, got {space}; "
            "change them with a gymnasium wrapper"
        )
    if isinstance(space, spaces.Box) and not space.shape:
        raise ValueError(f"{what} must have at least one dimension, got {space}")
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim > 1:
        raise ValueError(f"{what} must be one row of choices, got {space}; flatten them")
    # a policy adds the start of Discrete actions itself
    from_zero = spaces.MultiDiscrete if what == "actions" else spaces.MultiDiscrete | spaces.Discrete
    if isinstance(space, from_zero) and np.any(space.start):
        raise ValueError(f"{what} must count from 0, got {space}; subtract the start with a gymnasium wrapper")
