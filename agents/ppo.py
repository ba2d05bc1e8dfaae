"""Recurrent PPO: sb3-contrib's algorithm, with minibatches of whole sequences instead of padded pieces."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import sb3_contrib
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback

from rims_rl.agents.buffers import buffer_class
from rims_rl.agents.policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy


class RecurrentPPO(sb3_contrib.RecurrentPPO):
    """sb3-contrib's RecurrentPPO, made fast. Same arguments, same saved format, and three arguments more.

    Args:
        *args, **kwargs: of ``sb3_contrib.RecurrentPPO``. ``policy`` may also be ``"MlpRimsPolicy"``,
            ``"CnnRimsPolicy"`` or ``"MultiInputRimsPolicy"``.
        sequence_length: the rollout is cut into sequences of so many steps; each starts from the state that the core
            had there when the data was collected, and gradients stay inside it. It divides ``n_steps`` and
            ``batch_size``. Default: the longest that does.
        rollout_buffer_class: another class than our :mod:`rims_rl.agents.buffers`; it gets sb3-contrib's arguments.
        rollout_buffer_kwargs: more arguments for it.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        **sb3_contrib.RecurrentPPO.policy_aliases,
        "MlpRimsPolicy": MlpRimsPolicy,
        "CnnRimsPolicy": CnnRimsPolicy,
        "MultiInputRimsPolicy": MultiInputRimsPolicy,
    }

    def __init__(
        self,
        *args: Any,
        sequence_length: int | None = None,
        rollout_buffer_class: type | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["_init_setup_model"] = False  # not before the attributes below are there
        super().__init__(*args, **kwargs)
        self.sequence_length = sequence_length
        self.rollout_buffer_class = rollout_buffer_class
        self.rollout_buffer_kwargs = rollout_buffer_kwargs or {}
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        core: Any = self.policy.lstm_actor
        make: Any = self.rollout_buffer_class
        kwargs = dict(self.rollout_buffer_kwargs)
        if make is None:
            make = buffer_class(self.observation_space)
            kwargs["sequence_length"] = self._find_sequence_length()
        self.rollout_buffer = make(
            self.n_steps,
            self.observation_space,
            self.action_space,
            (self.n_steps, core.num_layers, self.n_envs, core.hidden_size),
            self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            **kwargs,
        )

    def _find_sequence_length(self) -> int:
        """The length asked for, or the longest possible; a ValueError if rollout, minibatch and length do not fit."""
        rollout = self.n_steps * self.n_envs
        batch = min(self.batch_size or rollout, rollout)
        if rollout % batch:
            fitting = max(size for size in range(1, batch + 1) if rollout % size == 0)
            raise ValueError(
                f"batch_size must divide n_steps * n_envs = {rollout}, so that minibatches are equal, got {batch}; "
                f"{fitting} would do"
            )
        longest = math.gcd(self.n_steps, batch)
        length = longest if self.sequence_length is None else self.sequence_length
        if length < 1 or longest % length:
            raise ValueError(
                f"sequence_length must divide n_steps={self.n_steps} and batch_size={batch}, got {length}; "
                f"{longest} would do"
            )
        return length

    def learn(self, total_timesteps: int, callback: MaybeCallback = None, *args: Any, **kwargs: Any) -> Any:
        if self.verbose:
            print(describe_parameters(self.policy))
        return super().learn(total_timesteps, callback, *args, **kwargs)

    @classmethod
    def load(cls, path: Any, *args: Any, **kwargs: Any) -> Any:
        """As in Stable-Baselines3. The file is a pickle: load only files that you trust."""
        try:
            return super().load(path, *args, **kwargs)
        except (ImportError, AttributeError, KeyError) as error:
            raise ValueError(
                f"{path} cannot be loaded: it needs something that is not there any more ({error}); install or restore "
                'it, or pass custom_objects={"policy_class": ...}'
            ) from error


def describe_parameters(policy: BasePolicy) -> str:
    """One line: how many parameters there are, and where."""
    total = sum(parameter.numel() for parameter in policy.parameters())
    text = f"{type(policy).__name__}: {total:,} parameters"
    if isinstance(policy, MlpRimsPolicy):
        parts = ", ".join(f"{part} {count:,}" for part, count in policy.parameter_counts().items())
        text += f" ({parts}; core {policy.core_name!r}, critic {policy.critic_kind!r})"
    return text
