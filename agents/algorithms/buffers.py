"""Rollouts cut into sequences of one length: no padding, and a core's state kept once per sequence, not per step."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from torch import Tensor

# The mix-in below uses what every rollout buffer has; type checkers need to be told.
_Buffer: Any = RolloutBuffer if TYPE_CHECKING else object


class SequenceSamples(NamedTuple):
    """A minibatch: sequences one after the other. What sb3-contrib's samples hold, and who was active."""

    observations: Any  # a tensor, or a dict of them
    actions: Tensor
    old_values: Tensor
    old_log_prob: Tensor
    advantages: Tensor
    returns: Tensor
    lstm_states: RNNStates  # where the sequences begin
    episode_starts: Tensor
    mask: Tensor  # ones
    active: Tensor | None  # (T, sequences, RIMs) bool
    action_masks: Tensor | None = None  # (sequences * T, actions) bool


class _Sequences(_Buffer):
    """What the two buffers below share. Mixed in before sb3-contrib's buffers, whose algorithms ask for their types.

    Each environment's rollout is cut into ``buffer_size / sequence_length`` sequences. An episode may end inside one:
    the core resets its state there. So every minibatch has the same shape, whatever the episodes were.
    """

    def __init__(self, buffer_size: int, *args: Any, sequence_length: int, **kwargs: Any) -> None:
        self.sequence_length = sequence_length
        super().__init__(buffer_size, *args, **kwargs)

    def reset(self) -> None:
        # Past sb3-contrib's reset, which would allocate four states for every step.
        parent = DictRolloutBuffer if isinstance(self, RecurrentDictRolloutBuffer) else RolloutBuffer
        parent.reset(self)
        self.states: list[RNNStates] = []  # at the beginning of each sequence, for all environments
        self.active: list[Tensor] = []  # at each step, if it is recorded: (1, environments, RIMs)
        self.action_masks: list[np.ndarray] = []  # at each step, if there are some: (environments, actions)

    def add(
        self,
        *args: Any,
        lstm_states: RNNStates,
        active: Tensor | None = None,
        action_masks: np.ndarray | None = None,
        **kwargs: Any,
    ) -> None:
        if self.pos % self.sequence_length == 0:
            self.states.append(lstm_states)
        if active is not None:
            self.active.append(active)
        if action_masks is not None:
            self.action_masks.append(action_masks)
        parent = DictRolloutBuffer if isinstance(self, RecurrentDictRolloutBuffer) else RolloutBuffer
        parent.add(self, *args, **kwargs)

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        """Minibatches of ``batch_size // sequence_length`` sequences in random order, the last of what is left; one of
        all of them if it is None."""
        if not self.full:
            raise RuntimeError("the rollout buffer must be full before sampling from it")
        if not self.generator_ready:
            self._flatten()
        sequences = self.n_envs * len(self.states)
        per_batch = min(sequences, max(1, batch_size // self.sequence_length)) if batch_size else sequences
        order = np.arange(sequences) if per_batch == sequences else np.random.permutation(sequences)
        for begin in range(0, sequences, per_batch):
            yield self._sample(order[begin : begin + per_batch])

    def _flatten(self) -> None:
        """(steps, envs, ...) -> (envs * steps, ...): sequences one after the other, environment by environment."""
        for name in ("observations", "actions", "values", "log_probs", "advantages", "returns", "episode_starts"):
            value = self.__dict__[name]
            if isinstance(value, dict):
                self.__dict__[name] = {key: self.swap_and_flatten(array) for key, array in value.items()}
            else:
                self.__dict__[name] = self.swap_and_flatten(value)
        self.generator_ready = True

    def _sample(self, chosen: np.ndarray) -> SequenceSamples:
        rows = (chosen[:, None] * self.sequence_length + np.arange(self.sequence_length)).ravel()

        def take(array: np.ndarray) -> Tensor:
            return self.to_torch(array[rows])

        observations: Any = self.observations
        return SequenceSamples(
            observations={key: take(o) for key, o in observations.items()}
            if isinstance(observations, dict)
            else take(observations),
            actions=take(self.actions),
            old_values=take(self.values).flatten(),
            old_log_prob=take(self.log_probs).flatten(),
            advantages=take(self.advantages).flatten(),
            returns=take(self.returns).flatten(),
            lstm_states=RNNStates(self._states("pi", chosen), self._states("vf", chosen)),
            episode_starts=take(self.episode_starts).flatten(),
            mask=torch.ones(len(rows), device=self.device),
            active=self._active(chosen),
            action_masks=take(self.swap_and_flatten(np.stack(self.action_masks))) if self.action_masks else None,
        )

    def _active(self, chosen: np.ndarray) -> Tensor | None:
        if not self.active:
            return None
        env, number = np.divmod(chosen, len(self.states))
        steps = number * self.sequence_length + np.arange(self.sequence_length)[:, None]  # (T, sequences)
        return torch.cat(self.active)[steps, env]

    def _states(self, whose: str, chosen: np.ndarray) -> tuple[Tensor, ...]:
        """h and c at the beginning of the chosen sequences, each (layers, sequences, hidden)."""
        # sequence i is number i % len(states) of environment i // len(states)
        env, number = np.divmod(chosen, len(self.states))
        # (number, layers, environment, hidden) -> (sequences, layers, hidden)
        parts = (torch.stack([getattr(state, whose)[part] for state in self.states]) for part in (0, 1))
        return tuple(part[number, :, env].transpose(0, 1) for part in parts)


class SequenceRolloutBuffer(_Sequences, RecurrentRolloutBuffer):  # type: ignore[misc]  # add() of each differs
    """For Box and Discrete observations."""


class SequenceDictRolloutBuffer(_Sequences, RecurrentDictRolloutBuffer):  # type: ignore[misc]
    """For Dict observations."""


def buffer_class(observation_space: spaces.Space[Any]) -> type[SequenceRolloutBuffer] | type[SequenceDictRolloutBuffer]:
    return SequenceDictRolloutBuffer if isinstance(observation_space, spaces.Dict) else SequenceRolloutBuffer
