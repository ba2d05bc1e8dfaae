"""Progressive networks (Rusu et al., 2016): beside the column that learns, frozen ones that were trained before.

Layer i of the new column also reads layer i - 1 of the frozen columns, through an adapter (their equation 2)::

    h_i = f(W_i h_{i-1} + U_i relu(V_i [a_1 h^1_{i-1}, ..., a_n h^n_{i-1}]))

where `a` are learned numbers that start small, and V is a 1 x 1 convolution or a matrix. Reading the two as one longer
input gives the same: `[W_i U_i]` is then one matrix. Layers are those of NatureCNN (other encoders are one layer), the
core, and the first layer of the heads. The frozen columns are encoders and cores; each keeps a memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from rims_rl.agents.policies.encoders import NatureEncoder, convolve, run_layers
from rims_rl.common.errors import UserError
from rims_rl.core import Core, State


class ProgressiveEncoder(BaseFeaturesExtractor):
    """Encoders of all columns. The output is one vector: what the new core reads, its own features and the adapter's,
    and then the features of each frozen column, for its core.

    Args:
        make: makes the encoder of one column.
        columns: how many are frozen.
    """

    def __init__(self, make: Callable[[], Any], columns: int) -> None:
        own = make()
        self.width: int = own.features_dim
        self.takes_bytes = getattr(own, "takes_bytes", False)
        super().__init__(own._observation_space, (2 + columns) * self.width)
        self.columns = nn.ModuleList(make() for _ in range(columns)).requires_grad_(False)
        self.own, self.laterals = own, nn.ModuleList()
        if isinstance(own, NatureEncoder):
            for i, layer in enumerate(own.cnn):
                if i > 0 and isinstance(layer, nn.Conv2d):
                    self.laterals.append(Lateral(columns, layer.in_channels, convolution=True))
                    own.cnn[i] = _widen(layer)
            last, flat = _last_layers(own)
            self.laterals.append(Lateral(columns, last.out_channels, convolution=True))
            own.linear[0] = nn.Linear(2 * flat.in_features, self.width)
        self.laterals.append(Lateral(columns, self.width))

    def forward(self, observations: Any) -> Tensor:
        with torch.no_grad():
            known = [_activations(encoder, observations) for encoder in self.columns]
        x = observations
        for i, layer in enumerate(_layers(self.own)):
            x = layer(x)
            x = torch.cat([x, self.laterals[i]([activations[i] for activations in known])], 1)
        return torch.cat([x, *(activations[-1] for activations in known)], 1)


class ProgressiveCore(Core):
    """Cores of all columns, for what :class:`ProgressiveEncoder` gives. The state holds those of all columns, the new
    one's first; the output is the new core's, and the adapter's of the others.

    Args:
        make: makes a core that reads so many features.
        width: features of one column.
        columns: how many are frozen.
    """

    def __init__(self, make: Callable[[int], Core], width: int, columns: int) -> None:
        own = make(2 * width)
        known = [make(width) for _ in range(columns)]
        seen = known[0].output_size
        super().__init__((2 + columns) * width, (1 + columns) * own.hidden_size, own.num_layers, own.output_size + seen)
        self.own = own
        self.columns = nn.ModuleList(known).requires_grad_(False)
        self.lateral = Lateral(columns, seen)
        self._widths = [2 * width] + [width] * columns

    def initial_state(self, batch: int) -> State:
        cores: list[Any] = [self.own, *self.columns]
        h, c = (torch.cat(parts, -1) for parts in zip(*(core.initial_state(batch) for core in cores), strict=True))
        return h, c

    def forward(
        self, x: Tensor, state: State | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        if state is None:
            state = self.initial_state(x.shape[1])
        inputs = x.split(self._widths, -1)
        states = list(zip(*(part.split(self.own.hidden_size, -1) for part in state), strict=True))
        output, new = self.own(inputs[0], _contiguous(states[0]), episode_starts)
        with torch.no_grad():
            known = [
                core(each, _contiguous(before), episode_starts)
                for core, each, before in zip(self.columns, inputs[1:], states[1:], strict=True)
            ]
        h, c = (torch.cat(parts, -1) for parts in zip(new, *(after for _, after in known), strict=True))
        return torch.cat([output, self.lateral([seen for seen, _ in known])], -1), (h, c)


class Lateral(nn.Module):
    """The adapter: what a layer of the new column reads of the frozen ones, as wide as what it reads of its own."""

    def __init__(self, columns: int, width: int, convolution: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(0.1 * torch.rand(columns))
        self.project = nn.Conv2d(columns * width, width, 1) if convolution else nn.Linear(columns * width, width)
        self._dim = 1 if convolution else -1

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        scaled = [scale * part for scale, part in zip(self.scale, parts, strict=True)]
        return torch.relu(self.project(torch.cat(scaled, self._dim)))


def check_column(policy: Any, source: Any, where: str) -> None:
    """A UserError if the trained policy ``source`` cannot be a frozen column of ``policy``; ``where`` names it."""
    for part, columns, module in (
        ("encoder", policy.features_extractor.columns, source.features_extractor),
        ("core", policy.core.columns, source.core),
    ):
        wanted, got = columns[0].state_dict(), module.state_dict()
        for name in sorted({*wanted, *got}):
            here, there = (tuple(each[name].shape) if name in each else "missing" for each in (wanted, got))
            if here != there:
                raise UserError(
                    f"{where} does not fit as a column: {part}, where {name!r} is {there} there, and {here} here; a "
                    "column is trained with the same observations, core and sizes, and has no columns itself"
                )


def load_columns(policy: Any, sources: Iterable[Any]) -> None:
    """Give the frozen columns of ``policy`` the weights of trained policies of one column."""
    for encoder, core, source in zip(policy.features_extractor.columns, policy.core.columns, sources, strict=True):
        encoder.load_state_dict(source.features_extractor.state_dict())
        core.load_state_dict(source.core.state_dict())


def _layers(encoder: nn.Module) -> list[Callable[[Any], Tensor]]:
    """What is computed one after the other, with a place for an adapter after each."""
    if not isinstance(encoder, NatureEncoder):
        return [lambda x: encoder(x).flatten(1)]
    first, *others = [layer for layer in encoder.cnn if isinstance(layer, nn.Conv2d)]
    return [
        lambda x: convolve([first, nn.ReLU()], x),
        *(lambda x, layer=layer: torch.relu_(layer(x)) for layer in others),
        lambda x: run_layers(encoder.linear, x.flatten(1)),
    ]


def _activations(encoder: nn.Module, x: Any) -> list[Tensor]:
    found = []
    for layer in _layers(encoder):
        x = layer(x)
        found.append(x)
    return found


def _last_layers(encoder: NatureEncoder) -> tuple[nn.Conv2d, nn.Linear]:
    *_, convolution, _, _ = encoder.cnn
    linear, _ = encoder.linear
    assert isinstance(convolution, nn.Conv2d) and isinstance(linear, nn.Linear)
    return convolution, linear


def _widen(layer: nn.Conv2d) -> nn.Conv2d:
    """For twice as many channels."""
    sizes: Any = (layer.kernel_size, layer.stride, layer.padding)
    return nn.Conv2d(2 * layer.in_channels, layer.out_channels, *sizes)


def _contiguous(state: Iterable[Tensor]) -> State:
    h, c = (part.contiguous() for part in state)
    return h, c
