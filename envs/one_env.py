"""One copy of an environment with its arguments and wrappers, as any process can make it."""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode
from minigrid.minigrid_env import MiniGridEnv

from rims_rl.common.errors import UserError
from rims_rl.common.own_code import import_here, import_path
from rims_rl.common.spaces import check_spaces
from rims_rl.envs.guard import blaming
from rims_rl.envs.mujoco.mujoco_warnings import keep_quiet
from rims_rl.envs.popgym.popgym_tasks import make_popgym

if TYPE_CHECKING:
    from rims_rl.envs.names import Resolved

if not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ) and sys.platform == "linux":
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else SDL complains in the middle of a progress bar
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # likewise; nobody listens


def make_one(env: Resolved, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Made by Gymnasium and then put into ``env_wrapper``. An environment that cannot be shown in ``render_mode`` is
    made without."""
    module, colon, _ = env.id.partition(":")
    import_packages([*(env.gym_packages or ()), *([module] if colon else ())])  # a new process has not done so
    arguments = env.env_kwargs or {}
    if env.family == "popgym":
        made = make_popgym(env.id, render_mode, arguments)
    else:
        if is_mujoco_id(env.id):
            keep_quiet()
        made = _make(env.id, render_mode, arguments)
    for wrapper in env.env_wrapper or ():
        path, options = (wrapper, {}) if isinstance(wrapper, str) else next(iter(wrapper.items()))
        made = import_path(path, "`env_wrapper`")(made, **options)
        if not isinstance(made, gym.Env):
            raise UserError(f"`env_wrapper` {path} must give a gymnasium.Env, got {type(made).__name__}")
    return made


def make_vector(env: Resolved, n_envs: int, render_mode: str | None = None) -> gym.vector.VectorEnv[Any, Any, Any]:
    """The vector environment that ``env`` registers with Gymnasium, or several copies behind each other."""
    import_packages(env.gym_packages)
    if is_mujoco_id(env.id):
        keep_quiet()
    if env.env_wrapper or env.observation or env.family:
        raise UserError(f"`vec_env` vector makes no wrappers, and {env.id} needs some; leave it out")
    shown = {"render_mode": render_mode} if render_mode and _is_shown(env.id, render_mode) else {}
    own = spec_of(env.id).vector_entry_point is not None
    how: dict[str, Any] = {} if own else {"vector_kwargs": {"autoreset_mode": AutoresetMode.SAME_STEP}}
    mode = "vector_entry_point" if own else "sync"
    arguments: dict[str, Any] = {**how, **shown, **(env.env_kwargs or {})}
    return gym.make_vec(env.id, n_envs, vectorization_mode=mode, **arguments)


def checked_spaces(env: Resolved) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Of observations and of actions; a UserError if no agent can have them, which Stable-Baselines3 would say late or
    not at all."""
    with blaming(env.id):
        if env.vec_env == "vector":
            many = make_vector(env, 1)
            observations, actions = many.single_observation_space, many.single_action_space
            many.close()
        else:
            one = make_one(env)
            observations, actions = one.observation_space, one.action_space
            one.close()
        try:
            check_spaces(observations, actions)
        except ValueError as error:
            raise UserError(f"{env.id} cannot be learned from: {error}") from error
    return observations, actions


def import_packages(packages: list[str] | None) -> None:
    """Modules by which Gymnasium learns of environments."""
    for package in packages or ():
        import_here(package, f"`gym_packages` {package}")


def is_minigrid(env: Resolved) -> bool:
    """Whether it is a MiniGrid environment, wherever its class is, which still observes as MiniGrid does."""
    if str(spec_of(env.id).entry_point).startswith("gymnasium."):
        return False
    with blaming(env.id):
        maker = _maker(env.id)
        if isinstance(maker, type) and not issubclass(maker, MiniGridEnv | gym.Wrapper):
            return False
        made = make_one(env)
        grid, seen = made.unwrapped, made.observation_space
        made.close()
    if not isinstance(grid, MiniGridEnv) or seen is not grid.observation_space:
        return False
    return isinstance(seen, spaces.Dict) and {"image", "mission"} <= set(seen.spaces)


def spec_of(env_id: str) -> EnvSpec:
    """Of an id with or without a module before it, which has been imported."""
    return gym.spec(env_id.rpartition(":")[2])


def is_mujoco_id(env_id: str) -> bool:
    """Whether its class is one of Gymnasium's for MuJoCo, without making one."""
    return ".mujoco" in str(spec_of(env_id).entry_point)


def _maker(env_id: str) -> Any:
    """The class of an environment, or the function that makes it."""
    entry_point = spec_of(env_id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def _make(env_id: str, render_mode: str | None, arguments: dict[str, Any]) -> gym.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*metadata doesn't include `render_modes`")  # which only watching needs
        if render_mode is not None and "render_mode" not in arguments and _is_shown(env_id, render_mode):
            try:
                return gym.make(env_id, render_mode=render_mode, **arguments)
            except TypeError as error:
                if "render_mode" not in str(error):
                    raise
        try:
            return gym.make(env_id, **arguments)
        except TypeError as error:
            if arguments and (wrong := re.search(r"unexpected keyword argument '(\w+)'", str(error))):
                raise UserError(f"`env_kwargs`: {env_id} takes no {wrong[1]!r}; {_arguments_of(env_id)}") from error
            raise


def _arguments_of(env_id: str) -> str:
    """What may be said of an environment, as far as its class, or the function that makes it, tells."""
    parameters = inspect.signature(_maker(env_id)).parameters.values()
    named = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return f"it takes {', '.join([*named, 'max_episode_steps'])}"


def _is_shown(env_id: str, render_mode: str) -> bool:
    """Whether to ask for it: what an environment does not know would be a warning for each copy."""
    metadata = getattr(_maker(env_id), "metadata", None)
    if not isinstance(metadata, dict):  # of a function, which may pass it on
        return True
    modes = metadata.get("render_modes") or []
    return render_mode in modes or (render_mode == "human" and "rgb_array" in modes)
