"""Many MiniGrid environments side by side, for Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from rims_rl.envs.minigrid.observation import MinigridObservation


def make_minigrid(
    env_id: str,
    num_envs: int,
    image: str,
    seed: int | None = None,
    render_mode: str = "rgb_array",
    vec_env_cls: type[DummyVecEnv] = DummyVecEnv,
) -> VecEnv:
    """``num_envs`` copies of a MiniGrid or BabyAI environment, in this process."""
    return make_vec_env(
        env_id,
        num_envs,
        seed=seed,
        env_kwargs={"render_mode": render_mode},
        wrapper_class=MinigridObservation,
        wrapper_kwargs=wrapper_arguments(env_id, image),
        vec_env_cls=vec_env_cls,
    )


def wrapper_arguments(env_id: str, image: str) -> dict[str, Any]:
    """Of MinigridObservation. In MultiRoom the agent also observes where the goal is, as in the paper's appendix, and
    its own direction, without which that would be of little use."""
    goal = str(gym.spec(env_id).entry_point).endswith(":MultiRoomEnv")
    return {"image": image, "direction": goal, "goal": goal}
