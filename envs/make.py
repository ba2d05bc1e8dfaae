"""Vectorised environments by name, ready for Stable-Baselines3."""

from __future__ import annotations

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.envs.atari import AtariVecEnv
from rims_rl.envs.names import Resolved


def make_envs(env: Resolved, n_envs: int, seed: int | None, threads: int = 0, clip_rewards: bool = True) -> VecEnv:
    """``n_envs`` copies of ``env``. Whole episodes are reported in ``infos[i]["episode"]``, with raw scores.

    Atari games: lost lives end episodes, and rewards are clipped if ``clip_rewards``; see :class:`AtariVecEnv`.
    """
    if env.rom is not None:
        return AtariVecEnv(
            env.rom,
            n_envs,
            clip_rewards=clip_rewards,
            repeat_action_probability=env.sticky,
            num_threads=min(threads, n_envs),
            seed=seed,
        )
    return make_vec_env(env.id, n_envs, seed=seed)
