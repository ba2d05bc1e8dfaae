"""Causal Transformer (Vaswani et al., "Attention is all you need", 2017, arXiv:1706.03762)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rims_rl.core.checks import check_starts
from rims_rl.core.core import Core, State


class Transformer(Core):
    """torch's Transformer encoder with a causal mask and sinusoidal positions, and nn.LSTM's call.

    Its memory is all that came before, so its state grows with every step: right for sequences, wrong for the fixed
    state of reinforcement learning, which refuses it.

    Args:
        input_size: width of the input.
        hidden_size: width of the model and of the output.
        num_layers: how many layers there are.
        heads: heads of the attention.
        feedforward_size: units inside each layer. Default: 4 times ``hidden_size``.
        dropout: of torch's layers.

    Inputs: x `(T, B, input_size)`, state: None or what the last call returned, and episode_starts `(T, B)`, not zero
    where all before is forgotten.

    Outputs: output `(T, B, hidden_size)` and the state: the past inputs `(P, B, input_size)`, and for each how many
    steps its episode had then, `(P, B)`.
    """

    state_grows = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        heads: int = 4,
        feedforward_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        if hidden_size % (step := math.lcm(heads, 2)):
            raise ValueError(
                f"hidden_size must be even and a multiple of heads={heads}, got {hidden_size}; "
                f"{max(1, hidden_size // step) * step} would do"
            )
        self.read = nn.Linear(input_size, hidden_size)
        layer = nn.TransformerEncoderLayer(hidden_size, heads, feedforward_size or 4 * hidden_size, dropout)
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)

    def initial_state(self, batch: int) -> State:
        raise TypeError("a Transformer's state grows with every step: it begins with state=None")

    def forward(
        self, x: Tensor, state: State | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise ValueError(f"x must be (T, B, {self.input_size}), got shape {tuple(x.shape)}")
        steps, batch = x.shape[:2]
        starts = x.new_zeros(steps, batch) if episode_starts is None else episode_starts
        check_starts(starts, (steps, batch), x)
        ages = _ages(starts != 0, None if state is None else state[1][-1])
        if state is not None:
            x, ages = torch.cat([state[0], x]), torch.cat([state[1], ages])
        embedded = self.read(x) + sinusoids(ages, self.hidden_size).to(x.dtype)
        output: Tensor = self.encoder(embedded, mask=self._mask(ages))
        return output[-steps:], (x, ages)

    def _mask(self, ages: Tensor) -> Tensor:
        """True where attention is not allowed: to later steps, and to those before the episode began."""
        time = torch.arange(len(ages), device=ages.device)
        later = time.unsqueeze(0) > time.unsqueeze(1)  # (T, T): row attends to column
        if torch.equal(ages, time.unsqueeze(1).expand_as(ages)):
            return later
        began = time.unsqueeze(1) - ages  # (T, B)
        forgotten = time < began.T.unsqueeze(-1)  # (B, T, T)
        heads: int = self.encoder.layers[0].self_attn.num_heads
        return (later | forgotten).repeat_interleave(heads, 0)


def _ages(starts: Tensor, before: Tensor | None) -> Tensor:
    """How many steps each step's episode had before it, `(T, B)`."""
    time = torch.arange(len(starts), device=starts.device).unsqueeze(1)
    last_start = torch.where(starts, time, -1).cummax(0).values
    first = time if before is None else time + 1 + before
    return torch.where(last_start < 0, first, time - last_start)


def sinusoids(ages: Tensor, size: int) -> Tensor:
    """The paper's sines and cosines, `(T, B, size)`."""
    rates = torch.exp(torch.arange(0, size, 2, device=ages.device) * (-math.log(10_000) / size))
    angles = ages.unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
