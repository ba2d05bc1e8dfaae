"""Statistics of normalised observations as plain data: what ``vecnormalize.pkl`` holds, without pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize


def statistics_to_json(envs: VecNormalize) -> dict[str, Any]:
    """Mean and variance of the observations, by key for Dict observations, and how they are clipped."""
    parts = {key: _describe(rms) for key, rms in _by_key(envs).items()}
    return {"observations": parts, "clip": envs.clip_obs, "epsilon": envs.epsilon}


def with_statistics(envs: VecEnv, data: dict[str, Any] | None) -> VecEnv:
    """``envs`` with observations normalised by ``data``; as they are if it is None."""
    if data is None:
        return envs
    keys = [key for key in data["observations"] if key] or None
    wrapped = VecNormalize(
        envs, training=False, norm_reward=False, clip_obs=data["clip"], epsilon=data["epsilon"], norm_obs_keys=keys
    )
    start_from_statistics(wrapped, data)
    return wrapped


def start_from_statistics(envs: VecNormalize, data: dict[str, Any]) -> None:
    """Set what :func:`statistics_to_json` returned."""
    for key, rms in _by_key(envs).items():
        _set(rms, data["observations"][key])


def freeze_statistics(envs: VecNormalize) -> None:
    """Let those of the observations stay what they are set to; those of the rewards go on."""
    frozen: dict[Any, RunningMeanStd] = {key: _Frozen(shape=rms.mean.shape) for key, rms in _by_key(envs).items()}
    envs.obs_rms = frozen if isinstance(envs.obs_rms, dict) else frozen[""]


def statistics_of_training(envs: VecNormalize) -> dict[str, Any]:
    """What training goes on with: also statistics of the rewards."""
    return {**statistics_to_json(envs), "rewards": _describe(envs.ret_rms)}


def restore_statistics(envs: VecNormalize, data: dict[str, Any]) -> None:
    """Set what :func:`statistics_of_training` returned."""
    start_from_statistics(envs, data)
    _set(envs.ret_rms, data["rewards"])


class _Frozen(RunningMeanStd):
    def update(self, arr: np.ndarray) -> None:
        pass


def _by_key(envs: VecNormalize) -> dict[str, RunningMeanStd]:
    return envs.obs_rms if isinstance(envs.obs_rms, dict) else {"": envs.obs_rms}


def _describe(rms: RunningMeanStd) -> dict[str, Any]:
    return {"mean": rms.mean.tolist(), "var": rms.var.tolist(), "count": rms.count}


def _set(rms: RunningMeanStd, data: dict[str, Any]) -> None:
    rms.mean, rms.var, rms.count = np.array(data["mean"]), np.array(data["var"]), data["count"]
