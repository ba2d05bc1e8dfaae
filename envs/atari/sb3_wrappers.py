"""Atari games on Stable-Baselines3's own wrappers: slower, but with modes, difficulties and frames in colour."""

from __future__ import annotations

from typing import Any

import ale_py  # noqa: F401  registers the games
import numpy as np
from stable_baselines3.common.env_util import make_atari_env, unwrap_wrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecTransposeImage
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn


def make_sb3_atari(
    env_id: str,
    num_envs: int,
    *,
    clip_rewards: bool = True,
    render_mode: str = "rgb_array",
    seed: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    **game: Any,
) -> VecEnv:
    """Like ``AtariVecEnv``, by ``make_atari_env``; docs/reference/environments.md has the differences.

    Args:
        env_id: Gymnasium's, such as ``"ALE/DemonAttack-v5"``.
        render_mode: ``"human"`` opens a window.
        env_kwargs: more arguments of gymnasium.make.
        game: what :func:`env_arguments` takes.

    The others are AtariVecEnv's.
    """
    envs: VecEnv = make_atari_env(
        env_id,
        num_envs,
        seed=seed,
        wrapper_kwargs={"clip_reward": clip_rewards},
        env_kwargs=env_arguments(**game) | {"render_mode": render_mode} | (env_kwargs or {}),
        vec_env_cls=_Games,  # in this process: subprocesses were not faster
    )
    return VecTransposeImage(VecFrameStack(envs, 4))


def env_arguments(
    repeat_action_probability: float = 0.0,
    mode: int | None = None,
    difficulty: int | None = None,
    max_frames: int = 108_000,
) -> dict[str, Any]:
    """Of Gymnasium's environment, for Stable-Baselines3's AtariWrapper around it.

    ``mode`` and ``difficulty`` are ALE's numbers; None for the game's defaults. The others are AtariVecEnv's.
    """
    return {
        "frameskip": 1,  # the wrapper skips: with the id's own 4, 16 frames would pass in one step
        "repeat_action_probability": repeat_action_probability,
        "mode": mode,
        "difficulty": difficulty,
        "max_num_frames_per_episode": max_frames,
    }


class _Games(DummyVecEnv):
    """Two repairs: ``reset`` starts new games, and the length of a game is in steps of the agent."""

    def reset(self) -> VecEnvObs:
        # After a lost life the wrapper's reset would only go on with the game, and not use the seed.
        self.env_method("set_wrapper_attr", "was_real_done", True)
        self._monitors: list[Any] = [unwrap_wrapper(env, Monitor) for env in self.envs]
        self._lengths, self._frames = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return super().reset()

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = super().step_wait()
        self._lengths += 1
        for i, info in enumerate(infos):
            if "episode" in info:  # written by Monitor, which sits below the wrapper that skips, and counts frames
                info["episode"]["l"] = int(self._lengths[i])
            # A game that ends in the no-op after a lost life is reported by nobody: the new one tells by its frames.
            frames = len(self._monitors[i].rewards)
            if "episode" in info or frames < self._frames[i]:
                self._lengths[i] = 0
            self._frames[i] = frames
        return observations, rewards, dones, infos
