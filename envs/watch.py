"""One environment that a person can watch."""

from __future__ import annotations

import numpy as np
from gymnasium import error as gym_error
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.common.errors import EnvironmentFailed, UserError
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import Resolved

ATARI_FPS = 15  # 60 frames per second on the console, and the agent sees every fourth


class NotShown(UserError):
    """An environment has no pictures."""


def make_watched(env: Resolved, seed: int, render_mode: str = "rgb_array", must_show: bool = True) -> VecEnv:
    """One ``env`` that can be shown, or need not be, and has begun. Only Stable-Baselines3's wrappers show Atari games
    in colour."""
    try:
        here = env._replace(vec_env=None)  # one is in this process, where it can be looked at
        envs = make_envs(here, 1, seed, clip_rewards=False, render_mode=render_mode)
        envs.reset()
        envs.seed(seed)
        if render_mode == "rgb_array" and must_show:
            frame_of(envs, env)
        if render_mode == "human" and envs.render_mode != "human":
            raise NotShown(f"{env.id} cannot be shown: it has no render_mode human")
    except (EnvironmentFailed, gym_error.Error) as error:  # a class without render_mode; a missing library
        raise NotShown(f"{env.id} cannot be shown: {error}") from error
    return envs


def frame_of(envs: VecEnv, env: Resolved) -> np.ndarray:
    """The picture of this moment: (height, width, 3) bytes."""
    frame = envs.get_images()[0] if envs.render_mode == "rgb_array" else None
    if frame is None:
        raise NotShown(f"{env.id} cannot be shown: it has no render_mode rgb_array")
    return frame


def is_shown(envs: VecEnv) -> bool:
    """Whether there is a picture of this moment."""
    return envs.render_mode == "rgb_array" and envs.get_images()[0] is not None


def own_speed(envs: VecEnv, env: Resolved) -> float:
    """Steps per second, as fast as the game itself is."""
    return ATARI_FPS if env.rom else envs.get_attr("metadata")[0].get("render_fps", 30)
