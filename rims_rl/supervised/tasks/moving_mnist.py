"""Moving MNIST: two digits that bounce, and what happens when single RIMs are masked out (appendix E.3)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count
from rims_rl.core import RIM
from rims_rl.supervised.data.mnist import mnist
from rims_rl.supervised.frame_networks import FEATURES, SIDE, VideoNetwork, film, frame_losses, roll_out
from rims_rl.supervised.task import TESTING, TRAINING, Task, TaskConfig, Tests

DIGIT = 28
ROOM = SIDE - DIGIT  # how far a digit's corner may be
FASTEST = 4  # pixels per frame


class MovingMnistConfig(TaskConfig):
    digits: Count
    frames: Annotated[int, Field(ge=3)]
    fed: Count  # true frames, before it sees its own


class MovingMnist(Task):
    """Cross entropy of rolled-out frames with all RIMs, and without each of them in turn.

    As in Stochastic Moving MNIST (Denton and Fergus, 2018), a digit that meets a wall leaves it with a new velocity.
    """

    name: ClassVar[str] = "moving_mnist"
    title: ClassVar[str] = "Moving MNIST: predict frames with single RIMs masked out"
    config_class: ClassVar[type[TaskConfig]] = MovingMnistConfig
    workers: ClassVar[int] = 1
    config: MovingMnistConfig

    def network(self) -> nn.Module:
        if self.config.fed >= self.config.frames - 1:
            raise UserError(f"fed must be less than frames - 1 = {self.config.frames - 1}, got {self.config.fed}")
        for part in ("train", "t10k"):
            mnist(part, self.data_dir)  # says at once when files are missing
        return VideoNetwork(self.core(FEATURES))

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        random = np.random.default_rng((TRAINING, seed, index))
        images = mnist("train", self.data_dir)[0].numpy()
        return (clips(images, self.config.digits, self.config.batch_size, self.config.frames, random),)

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        (frames,) = batch
        return frame_losses(network(frames[:-1])[0], frames[1:]).mean()

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        return {
            _name(dropped): self._measures(network, sequences_of_each, dropped)
            for dropped in (None, *self._rims(network))
        }

    def record(self, network: nn.Module) -> dict[str, Any]:
        """Frames of one clip, as the paper shows them: the true ones, and those with each RIM masked out."""
        frames = self._test_clips(1, np.random.default_rng((TESTING, 1)))
        rows = {"truth": frames[1:]}
        for dropped in (None, *self._rims(network)):
            with _without(network, dropped):
                logits = roll_out(network, frames, self.config.fed)
            rows[_name(dropped)] = torch.sigmoid(logits)
        return {"fed": self.config.fed, **film(rows)}

    def _measures(self, network: nn.Module, sequences: int, dropped: int | None) -> dict[str, float]:
        random, fed, size = np.random.default_rng((TESTING, 0)), self.config.fed, self.config.batch_size
        parts = []
        for begin in range(0, sequences, size):
            frames = self._test_clips(min(size, sequences - begin), random)
            with _without(network, dropped):
                parts.append(frame_losses(roll_out(network, frames, fed), frames[1:]))
        losses = torch.cat(parts, 1)
        return {"cross entropy rolled out": losses[fed:].mean().item(), "with true frames": losses[:fed].mean().item()}

    def _test_clips(self, count: int, random: np.random.Generator) -> Tensor:
        return clips(mnist("t10k", self.data_dir)[0].numpy(), self.config.digits, count, self.config.frames, random)

    @staticmethod
    def _rims(network: nn.Module) -> range:
        layer: Any = network.core.layers[0] if isinstance(network.core, RIM) else None
        return range(layer.num_rims if layer else 0)


def clips(images: np.ndarray, digits: int, count: int, frames: int, random: np.random.Generator) -> Tensor:
    """Frames (frames, count, 64, 64) between 0 and 1; digits that overlap are added, up to 1."""
    shapes = images[random.integers(len(images), size=(count, digits))]
    corners = paths(count, digits, frames, random)
    pictures = np.zeros((frames, count, SIDE, SIDE), np.uint16)
    for t, sequence, digit in np.ndindex(frames, count, digits):
        y, x = corners[t, sequence, digit]
        pictures[t, sequence, y : y + DIGIT, x : x + DIGIT] += shapes[sequence, digit]
    return torch.from_numpy(np.minimum(pictures, 255).astype(np.float32) / 255)


def paths(count: int, digits: int, frames: int, random: np.random.Generator) -> np.ndarray:
    """Corners (frames, count, digits, 2) of digits; at a wall one gets a new velocity, away from it."""
    corner = random.integers(ROOM + 1, size=(count, digits, 2))
    velocity = random.integers(-FASTEST, FASTEST + 1, size=corner.shape)
    found = [corner]
    for _ in range(frames - 1):
        corner = corner + velocity
        low, high = corner < 0, corner > ROOM
        away = random.integers(1, FASTEST + 1, size=corner.shape)
        fresh = random.integers(-FASTEST, FASTEST + 1, size=corner.shape)
        met = (low | high).any(-1, keepdims=True)
        velocity = np.where(low, away, np.where(high, -away, np.where(met, fresh, velocity)))
        corner = corner.clip(0, ROOM)
        found.append(corner)
    return np.stack(found)


def _name(dropped: int | None) -> str:
    return "whole" if dropped is None else f"without RIM {dropped}"  # the first is one that every core has


def _without(network: nn.Module, dropped: int | None) -> Any:
    core: Any = network.core
    return nullcontext() if dropped is None else core.drop(dropped)
