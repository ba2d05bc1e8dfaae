"""Invalid-action masks, as in sb3-contrib's MaskablePPO: an environment whose method ``action_masks()`` says which
actions are possible now is never given another one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.common.errors import UserError


def has_masks(envs: VecEnv) -> bool:
    """Whether the environments say which actions are possible; a UserError if they cannot for their actions."""
    if not is_masking_supported(envs):
        return False
    if not isinstance(envs.action_space, spaces.Discrete | spaces.MultiDiscrete):
        raise UserError(
            f"action_masks() is for Discrete and MultiDiscrete actions, got {envs.action_space}; remove the method"
        )
    return True


def masks_of(envs: VecEnv) -> np.ndarray:
    """Which actions are possible now: (environments, actions) bool; choices of MultiDiscrete actions side by side."""
    masks = get_action_masks(envs).astype(bool)
    size = mask_size(envs.action_space)
    if masks.shape != (envs.num_envs, size):
        raise UserError(f"action_masks() must give {size} values for {envs.action_space}, got shape {masks.shape[1:]}")
    if not masks.any(1).all():
        raise UserError("action_masks() allows no action at all; an episode has to end before that")
    return masks


def mask_size(space: spaces.Space[Any]) -> int:
    """How many logits actions are chosen by."""
    return int(space.nvec.sum()) if isinstance(space, spaces.MultiDiscrete) else int(space.n)  # type: ignore[attr-defined]


def with_masks(player: Any, envs: VecEnv) -> Any:
    """``player``, whose ``predict`` is told which actions are possible if ``envs`` say so."""
    return _Masked(player, envs) if has_masks(envs) else player


class _Masked:
    """Has the one method that evaluations call."""

    def __init__(self, player: Any, envs: VecEnv) -> None:
        self._policy, self._envs = getattr(player, "policy", player), envs  # a model's

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        return self._policy.predict(*args, **kwargs, action_masks=masks_of(self._envs))
