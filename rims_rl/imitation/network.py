"""Who learns: the paper's network for pictures, with any core."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from rims_rl.core import Core, State
from rims_rl.imitation.trajectories import as_channels

CHANNELS = (32, 64, 128, 256)  # of the encoder in Ha and Schmidhuber, "World models" (2018)
UNITS = 256  # of the two layers of the head, in the paper's appendix E.1


class PictureEncoder(nn.Sequential):
    """Ha and Schmidhuber's convolutions: bytes `(N, channels, side, side)` -> `(N, size)`, 1,024 for a side of 64.

    Each of the four has a kernel of 4 x 4 and a stride of 2, and is followed by a ReLU: 64 -> 31 -> 14 -> 6 -> 2.
    """

    def __init__(self, channels: int, side: int) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in zip((channels, *CHANNELS), CHANNELS, strict=False):
            layers += [nn.Conv2d(inputs, outputs, 4, 2), nn.ReLU()]
            side = (side - 4) // 2 + 1
        super().__init__(*layers, nn.Flatten())
        self.size = CHANNELS[-1] * side**2

    def forward(self, pictures: Tensor) -> Tensor:
        x = (pictures.float() / 255).contiguous(memory_format=torch.channels_last)
        return super().forward(x)


class ImitationNetwork(nn.Module):
    """Encoder, core and head: pictures `(T, B, channels, side, side)` -> `(T, B, outputs)`."""

    def __init__(self, encoder: PictureEncoder, core: Core, actions: Actions) -> None:
        super().__init__()
        self.encoder, self.core, self.actions = encoder, core, actions
        self.head = nn.Sequential(
            nn.Linear(core.output_size, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU(),
            nn.Linear(UNITS, actions.outputs),
        )  # fmt: skip
        self.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on CPUs

    def forward(self, pictures: Tensor, starts: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        steps, batch = pictures.shape[:2]
        features = self.encoder(pictures.flatten(0, 1)).unflatten(0, (steps, batch))
        output, state = self.core(features, state, starts)
        return self.head(output), state


class Actions:
    """Actions of a space as a network gives them, and back.

    Vectors are scaled so that their limits are -1 and 1, as far as they have any; the loss is the mean square of what
    is wrong with them. Numbers are chosen by logits; the loss is the cross entropy.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        if isinstance(space, spaces.Discrete):
            self.outputs, self.measure = int(space.n), "cross entropy"
            return
        assert isinstance(space, spaces.Box)
        self.outputs, self.measure = space.shape[0], "squared error"
        bounded = space.is_bounded()
        self._middle = (space.high + space.low) / 2 if bounded else np.zeros(space.shape, np.float32)
        self._half = (space.high - space.low) / 2 if bounded else np.ones(space.shape, np.float32)

    def targets(self, actions: np.ndarray) -> Tensor:
        """What a network should give for these actions."""
        if isinstance(self.space, spaces.Discrete):
            return torch.as_tensor(actions - self.space.start, dtype=torch.long)
        inside = np.clip(actions, self.space.low, self.space.high)  # type: ignore[attr-defined]
        return torch.as_tensor((inside - self._middle) / self._half, dtype=torch.float32)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if isinstance(self.space, spaces.Discrete):
            return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())
        return F.mse_loss(outputs, targets)

    def chosen(self, outputs: Tensor, deterministic: bool) -> np.ndarray:
        """Actions `(B, ...)` of the environment, from what the network gives, `(B, outputs)`."""
        if isinstance(self.space, spaces.Discrete):
            best = outputs.argmax(-1) if deterministic else torch.distributions.Categorical(logits=outputs).sample()
            return np.asarray(best.numpy() + self.space.start)
        low, high = self.space.low, self.space.high  # type: ignore[attr-defined]
        return np.clip(outputs.numpy() * self._half + self._middle, low, high).astype(self.space.dtype)


class Learner:
    """A network at play, with what it has seen and remembers of each copy of the environment."""

    def __init__(self, network: ImitationNetwork, stack: int, deterministic: bool) -> None:
        self._network, self._stack, self._deterministic = network, stack, deterministic
        self._seen: np.ndarray | None = None
        self._state: State | None = None

    def __call__(self, observations: Any, pictures: np.ndarray, starts: np.ndarray) -> np.ndarray:
        if self._seen is None:
            self._seen = np.repeat(pictures[:, None], self._stack, 1)
        self._seen = np.concatenate([self._seen[:, 1:], pictures[:, None]], 1)
        self._seen[starts] = pictures[starts, None]
        inputs = torch.from_numpy(as_channels(self._seen))[None]
        begins = torch.from_numpy(starts.astype(np.float32))[None]
        outputs, self._state = self._network(inputs, begins, self._state)
        return self._network.actions.chosen(outputs[0], self._deterministic)
