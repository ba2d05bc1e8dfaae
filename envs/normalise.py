"""Statistics of normalised observations as plain data: what ``vecnormalize.pkl`` holds, without pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize


def statistics_to_json(envs: VecNormalize) -> dict[str, Any]:
    """Mean and variance of the observations, by key for Dict observations, and how they are clipped."""
    rms = envs.obs_rms
    parts = rms if isinstance(rms, dict) else {"": rms}
    statistics = {key: {"mean": part.mean.tolist(), "var": part.var.tolist()} for key, part in parts.items()}
    return {"observations": statistics, "clip": envs.clip_obs, "epsilon": envs.epsilon}


def with_statistics(envs: VecEnv, data: dict[str, Any] | None) -> VecEnv:
    """``envs`` with observations normalised by ``data``; as they are if it is None."""
    if data is None:
        return envs
    keys = [key for key in data["observations"] if key] or None
    wrapped = VecNormalize(
        envs, training=False, norm_reward=False, clip_obs=data["clip"], epsilon=data["epsilon"], norm_obs_keys=keys
    )
    for key, part in data["observations"].items():
        rms: Any = wrapped.obs_rms[key] if key else wrapped.obs_rms
        rms.mean, rms.var = np.array(part["mean"]), np.array(part["var"])
    return wrapped


def statistics_of_training(envs: VecNormalize) -> dict[str, Any]:
    """What training goes on with: also counts, and statistics of the rewards."""
    parts = envs.obs_rms if isinstance(envs.obs_rms, dict) else {"": envs.obs_rms}
    return {"observations": {key: _describe(part) for key, part in parts.items()}, "rewards": _describe(envs.ret_rms)}


def restore_statistics(envs: VecNormalize, data: dict[str, Any]) -> None:
    """Set what :func:`statistics_of_training` returned."""
    parts = envs.obs_rms if isinstance(envs.obs_rms, dict) else {"": envs.obs_rms}
    for key, rms in parts.items():
        _set(rms, data["observations"][key])
    _set(envs.ret_rms, data["rewards"])


def _describe(rms: RunningMeanStd) -> dict[str, Any]:
    return {"mean": rms.mean.tolist(), "var": rms.var.tolist(), "count": rms.count}


def _set(rms: RunningMeanStd, data: dict[str, Any]) -> None:
    rms.mean, rms.var, rms.count = np.array(data["mean"]), np.array(data["var"]), data["count"]
