"""What every core is: a memory between an encoder and the heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

State = tuple[Tensor, Tensor]


class Core(nn.Module, ABC):
    """A recurrent network with the call of :class:`torch.nn.LSTM`, which also knows where episodes begin.

    Args:
        input_size: width of the input, or of one element of it.
        hidden_size: width of each of the two state tensors.
        num_layers: how many layers there are.
        output_size: width of the output. Default: ``hidden_size``.
        device, dtype: of the state, and of the weights.

    Inputs: x, state, episode_starts
        - **x** of shape `(T, B, input_size)`; a core that takes sets also reads `(T, B, N, input_size)`. Cores of ours
          take `(T, input_size)` too, and then all else has no B.
        - **state**: a pair of `(num_layers, B, hidden_size)`. Default: :meth:`initial_state`.
        - **episode_starts** of shape `(T, B)`: where it is not zero, the state is the initial one before that step.

    Outputs: output `(T, B, output_size)` and the new state.
    """

    takes_sets: ClassVar[bool] = False  # others are given the elements of a set side by side, as one vector
    state_grows: ClassVar[bool] = False  # with every step: no state for reinforcement learning
    _like: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        output_size: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.output_size = hidden_size if output_size is None else output_size
        # knows type and device of a core, even of one without weights
        self.register_buffer("_like", torch.empty(0, device=device, dtype=dtype), persistent=False)

    @abstractmethod
    def forward(
        self, x: Tensor, state: State | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """See the class docstring."""

    def _run_one(
        self, x: Tensor, state: State | None, episode_starts: Tensor | None, batch: int = 1
    ) -> tuple[Tensor, State]:
        """One sequence without a batch, which nn.LSTM takes too: `(T, input_size)`, with states `(num_layers,
        hidden_size)`. ``batch`` is where the batch would be in ``x``."""
        many = None if state is None else tuple(part.unsqueeze(1) for part in state)
        starts = None if episode_starts is None else episode_starts.unsqueeze(batch)
        output, (h, c) = self(x.unsqueeze(batch), many, starts)
        return output.squeeze(batch), (h.squeeze(1), c.squeeze(1))

    def initial_state(self, batch: int) -> State:
        """The state before a first step: a pair of `(num_layers, batch, hidden_size)`. Zeros, unless a core says
        otherwise."""
        shape = (self.num_layers, batch, self.hidden_size)
        h, c = (torch.zeros(shape, device=self._like.device, dtype=self._like.dtype) for _ in range(2))
        return h, c

    def begin(self, state: State, starts: Tensor) -> State:
        """``state``, and the initial one where ``starts`` (B,) is not zero."""
        going_on = (starts == 0).view(1, -1, 1)
        # chosen, not multiplied: zero times infinity is not a number
        first = self.initial_state(starts.shape[0])
        h, c = (torch.where(going_on, now, new) for now, new in zip(state, first, strict=True))
        return h, c
