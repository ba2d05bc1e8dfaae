"""Vectorised environments by name, ready for Stable-Baselines3."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack

from rims_rl.common.errors import UserError
from rims_rl.common.spaces import check_spaces
from rims_rl.envs.atari.atari_vector import AtariVecEnv
from rims_rl.envs.atari.distractors import Distractors
from rims_rl.envs.atari.sb3_wrappers import make_sb3_atari
from rims_rl.envs.guard import Guarded, blaming
from rims_rl.envs.gymnasium_vector import GymnasiumVecEnv
from rims_rl.envs.minigrid.observation import MinigridObservation, wrapper_arguments
from rims_rl.envs.names import Resolved
from rims_rl.envs.one_env import make_one, make_vector
from rims_rl.envs.pickup.pickup_vector import PickupVecEnv
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


def _make(env: Resolved, n_envs: int, seed: int | None, threads: int, clip_rewards: bool, render_mode: str) -> VecEnv:
    if env.rom is not None:
        games = _make_atari(env, n_envs, seed, threads, clip_rewards, render_mode)
        return games if env.distractors is None else Distractors(games, env.distractors, seed)
    if env.vec_env == "vector":
        many = GymnasiumVecEnv(make_vector(env, n_envs, render_mode), seed)
        return many if env.frame_stack is None else _stacked(many, env)
    copies = make_vec_env(
        partial(make_one, env, render_mode),
        n_envs,
        seed=seed,
        wrapper_class=MinigridObservation if env.observation else _checked,
        wrapper_kwargs=wrapper_arguments(env.id, env.observation) if env.observation else {},
        vec_env_cls=_vec_env_class(env, render_mode),
    )
    return copies if env.frame_stack is None else _stacked(copies, env)


def _vec_env_class(env: Resolved, render_mode: str) -> type[DummyVecEnv] | type[SubprocVecEnv]:
    """Ours step many copies at once, and so past what is put around each."""
    if env.vec_env is not None:
        return SubprocVecEnv if env.vec_env == "subproc" else DummyVecEnv
    if env.id.startswith("RimsRL/Pickup-") and env.observation and not env.env_wrapper:
        return PickupVecEnv
    # Gymnasium's window wants to see every step of the environment itself
    if env.family == "recall" and not env.env_wrapper and render_mode != "human":
        return RecallVecEnv
    return DummyVecEnv


def _stacked(envs: VecEnv, env: Resolved) -> VecEnv:
    assert env.frame_stack is not None
    space = envs.observation_space
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    if wrong := [part for part in parts if not isinstance(part, spaces.Box) or len(part.shape) == 2]:
        raise UserError(
            f"`frame_stack` {env.frame_stack} stacks vectors, and images that have channels, got {wrong[0]}; "
            "`env_wrapper` takes gymnasium.wrappers.FrameStackObservation, which stacks anything"
        )
    return VecFrameStack(envs, env.frame_stack)


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
        env_kwargs=env.env_kwargs,
    )
