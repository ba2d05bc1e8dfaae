"""The cores RIMs are compared with: LSTM, GRU and none. All have the call of :class:`rims_rl.RIM` without its sets."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from rims_rl.core.rims.cell import check_input, check_starts, check_state

State = tuple[Tensor, Tensor]


class Baseline(nn.Module):
    """Sizes, checks and episode starts: what the baselines share.

    Args:
        input_size: width of the input.
        hidden_size: width of each of the two state tensors.
        num_layers: how many layers there are.

    Inputs: x `(T, B, input_size)`, state: a pair of `(num_layers, B, hidden_size)`, default zeros, and episode_starts
    `(T, B)`, not zero where the state is set to zero before that step.

    Outputs: output `(T, B, output_size)` and the new state.
    """

    takes_sets = False

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.output_size = hidden_size

    def forward(
        self, x: Tensor, state: State | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        check_input(x, next(self.parameters(), x))
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise ValueError(f"x must be (T, B, {self.input_size}), got shape {tuple(x.shape)}")
        shape = (self.num_layers, x.shape[1], self.hidden_size)
        if state is None:
            state = (x.new_zeros(shape), x.new_zeros(shape))
        check_state(state, shape, x)
        if episode_starts is None:
            return self._run(x, state)
        check_starts(episode_starts, tuple(x.shape[:2]), x)
        # One fused call for each stretch of steps inside which nobody starts an episode.
        resets = (episode_starts != 0).any(1)
        resets[0] = True
        begins: list[int] = resets.nonzero().flatten().tolist()
        outputs = []
        for begin, end in zip(begins, [*begins[1:], len(x)], strict=True):
            alive = (episode_starts[begin] == 0).view(1, -1, 1)
            # chosen, not multiplied: zero times infinity is not a number
            h, c = (torch.where(alive, part, 0) for part in state)
            output, state = self._run(x[begin:end], (h, c))
            outputs.append(output)
        return torch.cat(outputs), state

    @abstractmethod
    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """All of ``x`` in one go, from ``state``."""


class LSTM(Baseline):
    """torch's fused LSTM. More keyword arguments go to :class:`torch.nn.LSTM`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **options: Any) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, **options)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.lstm(x, state)  # type: ignore[no-any-return]


class GRU(Baseline):
    """torch's fused GRU; the second state tensor is carried untouched. More keyword arguments go to torch.nn.GRU."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **options: Any) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.gru = nn.GRU(input_size, hidden_size, num_layers, **options)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        output, h = self.gru(x, state[0])
        return output, (h, state[1].clone())  # as nn.LSTM's, a new state may be written to


class Feedforward(Baseline):
    """No memory: the output is the input, and the state is carried untouched."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.output_size = input_size

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return x, (state[0].clone(), state[1].clone())
