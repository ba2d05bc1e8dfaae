"""Vectorised environments by name, ready for Stable-Baselines3."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from rims_rl.common.errors import UserError
from rims_rl.common.spaces import check_spaces
from rims_rl.envs.atari.atari_vector import AtariVecEnv
from rims_rl.envs.atari.distractors import Distractors
from rims_rl.envs.atari.sb3_wrappers import make_sb3_atari
from rims_rl.envs.guard import Guarded, blaming
from rims_rl.envs.minigrid.minigrid_vector import make_minigrid
from rims_rl.envs.names import Resolved
from rims_rl.envs.pickup.pickup_vector import PickupVecEnv
from rims_rl.envs.popgym.popgym_tasks import make_popgym, register_popgym
from rims_rl.envs.recall.recall_vector import RecallVecEnv


def make_envs(
    env: Resolved,
    n_envs: int,
    seed: int | None,
    threads: int = 0,
    clip_rewards: bool = True,
    render_mode: str = "rgb_array",
) -> VecEnv:
    """``n_envs`` copies of ``env``. Whole episodes are reported in ``infos[i]["episode"]``, with raw scores. What goes
    wrong in them is said in their name, see :class:`Guarded`.

    Atari games: lost lives end episodes, and rewards are clipped if ``clip_rewards``; see :class:`AtariVecEnv`.
    """
    with blaming(env.id):
        return Guarded(_make(env, n_envs, seed, threads, clip_rewards, render_mode), env.id)


def make_plain(env: Resolved) -> gym.Env[Any, Any]:
    """One ``env``, as Gymnasium makes it."""
    if env.family == "popgym":
        register_popgym(env.id)
    return gym.make(env.id)


def _make(env: Resolved, n_envs: int, seed: int | None, threads: int, clip_rewards: bool, render_mode: str) -> VecEnv:
    if env.rom is not None:
        games = _make_atari(env, n_envs, seed, threads, clip_rewards, render_mode)
        return games if env.distractors is None else Distractors(games, env.distractors, seed)
    if env.observation is not None:
        vec_env_cls: type[DummyVecEnv] = PickupVecEnv if env.id.startswith("RimsRL/Pickup-") else DummyVecEnv
        return make_minigrid(env.id, n_envs, env.observation, seed, render_mode, vec_env_cls)
    if env.family == "recall":
        # Gymnasium's window wants to see every step of the environment itself
        vec_env_cls = DummyVecEnv if render_mode == "human" else RecallVecEnv
        return make_vec_env(env.id, n_envs, seed=seed, env_kwargs={"render_mode": render_mode}, vec_env_cls=vec_env_cls)
    if env.family == "popgym":
        make_one = partial(make_popgym, env.id, render_mode)
        return make_vec_env(make_one, n_envs, seed=seed, wrapper_class=_checked)
    # make_vec_env asks for rgb_array by itself, and does without where an environment does not know it
    env_kwargs = {} if render_mode == "rgb_array" else {"render_mode": render_mode}
    return make_vec_env(env.id, n_envs, seed=seed, env_kwargs=env_kwargs, wrapper_class=_checked)


def _checked(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """``env``, if an agent can have its spaces: Stable-Baselines3 would fail at them without saying so."""
    try:
        check_spaces(env.observation_space, env.action_space)
    except ValueError as error:
        raise UserError(str(error)) from error
    return env


def _make_atari(
    env: Resolved, n_envs: int, seed: int | None, threads: int, clip_rewards: bool, render_mode: str
) -> VecEnv:
    if env.backend == "ale":
        assert env.rom is not None
        return AtariVecEnv(
            env.rom,
            n_envs,
            clip_rewards=clip_rewards,
            repeat_action_probability=env.sticky,
            num_threads=min(threads, n_envs),
            seed=seed,
        )
    return make_sb3_atari(
        env.id,
        n_envs,
        clip_rewards=clip_rewards,
        repeat_action_probability=env.sticky,
        mode=env.game_mode,
        difficulty=env.difficulty,
        render_mode=render_mode,
        seed=seed,
    )
