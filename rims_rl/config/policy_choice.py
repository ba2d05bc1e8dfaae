"""Which policy reads observations of a kind, and why, in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from rims_rl.config.layers import Layer
from rims_rl.envs.names import Resolved
from rims_rl.envs.one_env import checked_spaces

CHOSEN = "observations are"  # how the reason begins
SMALLEST_GRID = 3  # that the encoder of small grids reads
MANY = 1000  # numbers of which one would rather hear before a dense layer reads them


def policy_layer(env: Resolved) -> Layer:
    """The policy for an environment of no family: a layer of settings, whose source is the reason."""
    space, _ = checked_spaces(env)
    if isinstance(space, spaces.Dict):
        return f"{CHOSEN} a Dict of {', '.join(space.spaces)}", {"policy": "MultiInputRimsPolicy"}
    if isinstance(space, spaces.Box) and len(space.shape) in (2, 3):
        kind = _kind_of_grid(space)
        if kind is not None:
            return f"{CHOSEN} {kind} of shape {space.shape}", {"policy": "CnnRimsPolicy"}
    if isinstance(space, spaces.Box) and len(space.shape) > 1 and math.prod(space.shape) > MANY:
        images = "bytes from 0 to 255"
        if len(space.shape) > 3:  # as of gymnasium's FrameStackObservation
            images = "at most three dimensions (`frame_stack` puts frames side by side as channels)"
        why = f"which are no image to Stable-Baselines3, because these have {images}"
        return f"{CHOSEN} {math.prod(space.shape):,} numbers, {space}, {why}", {"policy": "MlpRimsPolicy"}
    return f"{CHOSEN} {_describe(space)}", {"policy": "MlpRimsPolicy"}


def is_worth_saying(source: str, policy: str) -> bool:
    """Whether a user should hear why a policy was chosen: always, but for a few numbers, as in CartPole."""
    return source.startswith(CHOSEN) and (policy != "MlpRimsPolicy" or "no image" in source)


def _kind_of_grid(space: spaces.Box) -> str | None:
    if space.dtype != np.uint8 or sorted(space.shape)[-2] < SMALLEST_GRID:  # a third size is that of channels
        return None
    if len(space.shape) == 3 and is_image_space(space):
        return "images"
    if not (space.low == 0).all():
        return None
    if len(space.shape) == 2 and (space.high == 255).all():
        return "grey images"
    return "a grid of codes" if (space.high < 255).all() else None


def _describe(space: spaces.Space[Any]) -> str:
    return f"{space.shape[0]} numbers" if space.shape else str(space)
