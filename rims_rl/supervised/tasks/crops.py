"""Video from crops: a few small windows of each frame are seen, others of the next are asked for (appendix D.5)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count
from rims_rl.core import Core, takes_sets
from rims_rl.supervised.data.physics import BOX, Balls, draw, draw_velocities, place, simulate
from rims_rl.supervised.task import TESTING, TRAINING, Task, TaskConfig, Tests

SIDE = 48
RADIUS, SPEED = 0.8, 0.2  # of each ball; the speed is a typical one, in units per frame


class CropsConfig(TaskConfig):
    balls: Count  # in training, besides the fixed one
    test_balls: Annotated[list[Count], Field(min_length=1)]
    frames: Annotated[int, Field(ge=2)]
    crops: Count  # windows that are seen of each frame, and as many that are asked for
    crop_side: Annotated[int, Field(ge=1, le=SIDE)]
    element_size: Count
    halve_after: Count | None  # points of the curve without a loss lower by 0.01 %: the learning rate is halved
    oracle: bool  # time-travelling: it sees windows of the frame that it is asked about


class Crops(Task):
    """F1 and balanced accuracy of the pixels that are asked for, one frame ahead.

    The paper names neither the size nor the number of windows, nor that of the balls: these are ours. Its upper bound,
    the time-travelling oracle, need not know how balls move: here it is ``core=none`` and ``oracle=true``, which sees
    windows of the very frame that it is asked about.
    """

    name: ClassVar[str] = "crops"
    title: ClassVar[str] = "Video from crops: small windows of bouncing balls, also with other numbers of balls"
    config_class: ClassVar[type[TaskConfig]] = CropsConfig
    bounded: ClassVar[dict[str, float]] = {"F1": 1.0, "balanced accuracy": 1.0}
    workers: ClassVar[int] = 1
    config: CropsConfig

    def network(self) -> nn.Module:
        config = self.config
        clips(max(config.balls, *config.test_balls), config.batch_size, 1, np.random.default_rng(0))  # or no room
        try:
            elements = 1 if takes_sets(config.core) else config.crops
        except ValueError as error:
            raise UserError(str(error)) from error
        return CropNetwork(self.core(config.element_size * elements), config.crop_side, config.element_size)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        return self._clips(self.config.balls, self.config.batch_size, np.random.default_rng((TRAINING, seed, index)))

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        *seen, wanted, where = batch
        return F.binary_cross_entropy_with_logits(network(*seen, where), wanted)

    def schedule(self, optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau | None:
        if (patience := self.config.halve_after) is None:
            return None
        # torch's patience is how many may pass without anything being done
        return ReduceLROnPlateau(optimizer, factor=0.5, patience=patience - 1, threshold=1e-4)

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        found, size = {}, self.config.batch_size
        for balls in self.config.test_balls:
            random = np.random.default_rng((TESTING, balls))
            counts = torch.zeros(4)
            for begin in range(0, sequences_of_each, size):
                *seen, wanted, where = self._clips(balls, min(size, sequences_of_each - begin), random)
                counts += confusion(network(*seen, where) > 0, wanted > 0)
            found[f"{balls} ball{'s' if balls > 1 else ''}"] = measures(*counts.tolist())
        return found

    def _clips(self, balls: int, count: int, random: np.random.Generator) -> tuple[Tensor, ...]:
        """Windows that are seen and their places, windows that are asked for and theirs: (T, count, crops, ...)."""
        config = self.config
        pictures = torch.from_numpy(clips(balls, count, config.frames, random))
        seen = pictures[1:] if config.oracle else pictures[:-1]
        shape = (*seen.shape[:2], config.crops, 2)
        places, asked = (torch.from_numpy(random.integers(SIDE - config.crop_side + 1, size=shape)) for _ in range(2))
        return (
            cut(seen, places, config.crop_side), places,
            cut(pictures[1:], asked, config.crop_side), asked,
        )  # fmt: skip


class CropNetwork(nn.Module):
    """Each window and its place make one element; the core's output and a place make the window there."""

    def __init__(self, core: Core, crop_side: int, element_size: int) -> None:
        super().__init__()
        self.core, self.crop_side = core, crop_side
        pixels, width = crop_side**2, core.output_size
        self.encoder = nn.Sequential(
            nn.Linear(pixels + PLACE, element_size), nn.ReLU(), nn.Linear(element_size, element_size)
        )
        self.head = nn.Sequential(nn.Linear(width + PLACE, 256), nn.ReLU(), nn.Linear(256, pixels))

    def forward(self, windows: Tensor, places: Tensor, asked: Tensor) -> Tensor:
        elements = self.encoder(torch.cat([windows, _place_features(places)], -1))  # (T, B, crops, element_size)
        output, _ = self.core(elements if self.core.takes_sets else elements.flatten(2))
        output = output.unsqueeze(2).expand(*asked.shape[:3], -1)
        logits: Tensor = self.head(torch.cat([output, _place_features(asked)], -1))
        return logits


WAVES = 4
PLACE = 4 * WAVES


def _place_features(places: Tensor) -> Tensor:
    """Corners (..., 2) -> sines and cosines of four wavelengths, (..., PLACE)."""
    angles = places.unsqueeze(-1) * (math.pi / SIDE) * 2.0 ** torch.arange(WAVES)
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)


def clips(balls: int, count: int, frames: int, random: np.random.Generator) -> np.ndarray:
    """Pictures (frames, count, 48, 48) of bool, with one more ball that never moves in the middle."""
    radius = np.full((count, balls), RADIUS)
    middle = np.full((count, 1, 2), BOX / 2)
    position = np.concatenate([place(radius, random, np.array([BOX / 2, BOX / 2]), RADIUS), middle], 1)
    velocity = draw_velocities(radius, SPEED * math.sqrt(balls), random)
    all_radii = np.full((count, balls + 1), RADIUS)
    moved = Balls(
        position,
        np.concatenate([velocity, np.zeros((count, 1, 2))], 1),
        all_radii,
        np.concatenate([np.ones((count, balls)), np.zeros((count, 1))], 1),
    )
    return draw(simulate(moved, frames)[0], all_radii, SIDE)


def cut(pictures: Tensor, places: Tensor, side: int) -> Tensor:
    """(T, B, 48, 48) and upper left corners (T, B, crops, 2) -> (T, B, crops, side * side) of 0.0 and 1.0."""
    windows = sliding_window_view(pictures.numpy(), (side, side), (2, 3))  # copies nothing, and is faster than torch's
    t, b = np.ogrid[: len(pictures), : pictures.shape[1]]
    rows, columns = places.unbind(-1)
    found = windows[t[..., None], b[..., None], rows.numpy(), columns.numpy()]  # (T, B, crops, side, side)
    return torch.from_numpy(found).flatten(-2).float()


def confusion(answered: Tensor, true: Tensor) -> Tensor:
    """True positives, false positives, false negatives, true negatives."""
    pairs = [(answered, true), (answered, ~true), (~answered, true), (~answered, ~true)]
    return torch.stack([(answer & truth).sum() for answer, truth in pairs])


def measures(tp: float, fp: float, fn: float, tn: float) -> dict[str, float]:
    """Harmonic mean of precision and recall; mean of recall and specificity. 0 where nothing was found."""
    return {
        "F1": 2 * tp / max(2 * tp + fp + fn, 1),
        "balanced accuracy": (tp / max(tp + fn, 1) + tn / max(tn + fp, 1)) / 2,
    }
