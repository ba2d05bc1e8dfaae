"""The cores RIMs are compared with: LSTM, GRU and none. All have the call of :class:`rims_rl.RIM` without its sets."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from rims_rl.core.checks import check_input, check_starts, check_state
from rims_rl.core.core import Core, State


class Baseline(Core):
    """Checks and episode starts: what the baselines share. Arguments, inputs and outputs are those of :class:`Core`."""

    def forward(
        self, x: Tensor, state: State | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        check_input(x, next(self.parameters(), x))
        if x.dim() == 2 and x.shape[1] == self.input_size:
            return self._run_one(x, state, episode_starts)
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise ValueError(f"x must be (T, B, {self.input_size}), got shape {tuple(x.shape)}")
        if state is None:
            state = self.initial_state(x.shape[1])
        check_state(state, (self.num_layers, x.shape[1], self.hidden_size), x)
        if episode_starts is None:
            return self._run(x, state)
        check_starts(episode_starts, tuple(x.shape[:2]), x)
        return self._run_episodes(x, state, episode_starts)

    def _run_episodes(self, x: Tensor, state: State, episode_starts: Tensor) -> tuple[Tensor, State]:
        """One fused call for each stretch of steps inside which nobody starts an episode."""
        resets: list[bool] = (episode_starts != 0).any(1).tolist()
        begins = [t for t, reset in enumerate(resets) if reset or t == 0]
        outputs = []
        for begin, end in zip(begins, [*begins[1:], len(x)], strict=True):
            if resets[begin]:
                state = self.begin(state, episode_starts[begin])
            output, state = self._run(x[begin:end], state)
            outputs.append(output)
        return torch.cat(outputs), state

    @abstractmethod
    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """All of ``x`` in one go, from ``state``."""


class LSTM(Baseline):
    """torch's fused LSTM. ``bias`` and ``dropout`` (between layers) are those of :class:`torch.nn.LSTM`."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.lstm(x, state)  # type: ignore[no-any-return]


class GRU(Baseline):
    """torch's fused GRU; the second state tensor is carried untouched."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.gru = nn.GRU(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        output, h = self.gru(x, state[0])
        return output, (h, state[1].clone())  # as nn.LSTM's, a new state may be written to


class RNN(Baseline):
    """torch's fused plain RNN, with tanh; as :class:`GRU` besides."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.rnn = nn.RNN(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        output, h = self.rnn(x, state[0])
        return output, (h, state[1].clone())


class Feedforward(Baseline):
    """No memory: the output is the input, and the state is carried untouched."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1) -> None:
        super().__init__(input_size, hidden_size, num_layers, output_size=input_size)

    def _run_episodes(self, x: Tensor, state: State, episode_starts: Tensor) -> tuple[Tensor, State]:
        return x, self.begin(state, episode_starts.any(0))

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return x, (state[0].clone(), state[1].clone())
