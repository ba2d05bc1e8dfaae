"""Statistics of normalized observations as plain data: what ``vecnormalize.pkl`` holds, without pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rims_rl.agents.saved.description import Normalization, Statistics


def statistics_of(envs: VecNormalize) -> Normalization:
    """Mean and variance of the observations, and how they are clipped."""
    observations = {key: _describe(rms) for key, rms in _by_key(envs).items()}
    return Normalization(observations=observations, clip=envs.clip_obs, epsilon=envs.epsilon)


def with_statistics(envs: VecEnv, normalization: Normalization | None) -> VecEnv:
    """``envs`` with observations normalized; as they are if it is None."""
    if normalization is None:
        return envs
    wrapped = VecNormalize(
        envs,
        training=False,
        norm_reward=False,
        clip_obs=normalization.clip,
        epsilon=normalization.epsilon,
        norm_obs_keys=[key for key in normalization.observations if key] or None,
    )
    start_from_statistics(wrapped, normalization)
    return wrapped


def start_from_statistics(envs: VecNormalize, normalization: Normalization) -> None:
    """Set what :func:`statistics_of` returned."""
    for key, rms in _by_key(envs).items():
        _set(rms, normalization.observations[key])


def freeze_statistics(envs: VecNormalize) -> None:
    """Let those of the observations stay what they are set to; those of the rewards go on."""
    frozen: dict[Any, RunningMeanStd] = {key: _Frozen(shape=rms.mean.shape) for key, rms in _by_key(envs).items()}
    envs.obs_rms = frozen if isinstance(envs.obs_rms, dict) else frozen[""]


def statistics_of_training(envs: VecNormalize) -> dict[str, Any]:
    """What training goes on with, as plain data: also statistics of the rewards."""
    return {**statistics_of(envs).model_dump(), "rewards": _describe(envs.ret_rms).model_dump()}


def restore_statistics(envs: VecNormalize, data: dict[str, Any]) -> None:
    """Set what :func:`statistics_of_training` returned."""
    rewards = Statistics.model_validate(data["rewards"])
    start_from_statistics(envs, Normalization.model_validate({k: v for k, v in data.items() if k != "rewards"}))
    _set(envs.ret_rms, rewards)


class _Frozen(RunningMeanStd):
    def update(self, arr: np.ndarray) -> None:
        pass


def _by_key(envs: VecNormalize) -> dict[str, RunningMeanStd]:
    return envs.obs_rms if isinstance(envs.obs_rms, dict) else {"": envs.obs_rms}


def _describe(rms: RunningMeanStd) -> Statistics:
    return Statistics(mean=rms.mean.tolist(), var=rms.var.tolist(), count=rms.count)


def _set(rms: RunningMeanStd, statistics: Statistics) -> None:
    rms.mean, rms.var, rms.count = np.array(statistics.mean), np.array(statistics.var), statistics.count
