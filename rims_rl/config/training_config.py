"""What a training run can be told: the settings of both algorithms, and what they become in Stable-Baselines3."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rims_rl.common.own_code import import_path
from rims_rl.config.fields import Count, Fraction, NotNegative, Positive, Schedule, Settings


class TrainConfig(Settings):
    """What both algorithms have. The section ``default`` of each YAML file gives all of them."""

    _RUN: ClassVar = {"n_timesteps", "n_envs", "policy", "normalize"}
    POLICY: ClassVar = ("core", "num_rims", "num_active", "rim_size", "critic", "core_kwargs")

    n_timesteps: Count
    n_envs: Count
    policy: Literal["MlpRimsPolicy", "CnnRimsPolicy", "MultiInputRimsPolicy"]
    normalize: bool  # observations and rewards, by Stable-Baselines3's VecNormalize

    core: Annotated[str, Field(min_length=1)]
    num_rims: Count
    num_active: Count
    rim_size: Count
    critic: Literal["shared", "separate", "none"]
    core_kwargs: dict[str, Any]
    policy_kwargs: dict[str, Any]

    learning_rate: Schedule
    n_steps: Count
    gamma: Fraction
    gae_lambda: Fraction
    normalize_advantage: bool
    ent_coef: NotNegative
    vf_coef: NotNegative
    max_grad_norm: Positive
    sequence_length: Count | None

    def algorithm_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the algorithm's class, except ``policy_kwargs``."""
        names = set(type(self).model_fields) - self._RUN - {*self.POLICY, "policy_kwargs"}
        return {name: _schedule(value) for name, value in self.model_dump(include=names).items()}

    def policy_arguments(self) -> dict[str, Any]:
        """``policy_kwargs`` of the algorithm's class."""
        paths = {key: value for key, value in self.policy_kwargs.items() if is_path(key, value)}
        options = self.policy_kwargs | {key: import_path(path, f"policy_kwargs.{key}") for key, path in paths.items()}
        return self.model_dump(include=set(self.POLICY)) | options

    @property
    def minibatch(self) -> int:
        """How many steps one gradient is made of."""
        return self.n_steps * self.n_envs


class PPOConfig(TrainConfig):
    batch_size: Count
    n_epochs: Count
    clip_range: Schedule
    clip_range_vf: Schedule | None
    target_kl: Positive | None
    replay_active: bool = False

    @property
    def minibatch(self) -> int:
        return min(self.batch_size, super().minibatch)


class A2CConfig(TrainConfig):
    use_rms_prop: bool
    rms_prop_eps: Positive


ALGORITHMS: dict[str, type[TrainConfig]] = {"ppo": PPOConfig, "a2c": A2CConfig}


def is_path(key: str, value: Any) -> bool:
    """Whether a policy's argument is a class or function, given by its dotted path."""
    return isinstance(value, str) and key.endswith(("_class", "_fn"))


def _schedule(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("lin_"):
        from stable_baselines3.common.utils import LinearSchedule

        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value
