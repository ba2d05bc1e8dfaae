"""Bouncing balls: predict the next frame, then go on alone (section 4.2, appendix D.4). Data after R-NEM's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count
from rims_rl.supervised.data.physics import Balls, draw, draw_velocities, place, simulate
from rims_rl.supervised.frame_networks import FEATURES, SIDE, StripEncoder, VideoNetwork, film, frame_losses, roll_out
from rims_rl.supervised.task import TESTING, TRAINING, Task, TaskConfig, Tests

CURTAIN = 28  # side of the square that hides, in pixels
EARLY = 10  # frames of rolling out after which, the paper says, cross entropy stops being a good measure


class Kind(NamedTuple):
    """As measured in R-NEM's clips."""

    fewest: int
    most: int
    radii: tuple[float, ...]
    inverse_masses: tuple[float, ...]  # of a ball with each radius
    speed: float  # norm over all balls together, per frame


KINDS = {
    "four": Kind(4, 4, (0.8, 1.0), (1.0, 1 / 6), 1 / 3),
    "six-eight": Kind(6, 8, (0.8, 1.0), (1.0, 1 / 6), 1 / 3),
    "curtain": Kind(3, 3, (1.2,), (1.0,), 0.5),
}
KindName = Literal["four", "six-eight", "curtain"]


class BouncingBallsConfig(TaskConfig):
    balls: KindName  # in training
    test_balls: Annotated[list[KindName], Field(min_length=1)]
    frames: Annotated[int, Field(ge=3)]
    fed: Count  # true frames, before it sees its own
    strips: bool  # each RIM sees one horizontal strip only, through an encoder of its own


class BouncingBalls(Task):
    """Binary cross entropy per frame, summed over its pixels: with true frames, and rolling out."""

    name: ClassVar[str] = "bouncing_balls"
    title: ClassVar[str] = "Bouncing balls: predict frames, also with other numbers of balls"
    config_class: ClassVar[type[TaskConfig]] = BouncingBallsConfig
    workers: ClassVar[int] = 1
    config: BouncingBallsConfig

    def network(self) -> nn.Module:
        if self.config.fed >= self.config.frames - 1:
            raise UserError(f"fed must be less than frames - 1 = {self.config.frames - 1}, got {self.config.fed}")
        if not self.config.strips:
            return VideoNetwork(self.core(FEATURES))
        if self.config.core != "rims" or not self.config.core_kwargs.get("own_elements"):
            raise UserError(
                "strips=true needs RIMs that see their own only: `core` rims, `settings` core_kwargs.own_elements=true"
            )
        return VideoNetwork(self.core(FEATURES), StripEncoder(self.config.num_rims))

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        random = np.random.default_rng((TRAINING, seed, index))
        return (clips(self.config.balls, self.config.batch_size, self.config.frames, random),)

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        (frames,) = batch
        return frame_losses(network(frames[:-1])[0], frames[1:]).mean()

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        fed = self.config.fed
        found: Tests = {}
        for kind in self.config.test_balls:
            losses = self._losses(network, kind, sequences_of_each)
            found[kind] = {
                "cross entropy with true frames": losses[:fed].mean().item(),
                f"of the first {EARLY} rolled out": losses[fed : fed + EARLY].mean().item(),
                "of all rolled out": losses[fed:].mean().item(),
            }
        return found

    def record(self, network: nn.Module) -> dict[str, Any]:
        """Cross entropy frame by frame, and predicted frames of one clip of each kind below the true ones."""
        per_frame = {
            kind: self._losses(network, kind, self._recorded).mean(1).tolist() for kind in self.config.test_balls
        }
        rows: dict[str, Tensor] = {}
        for kind in self.config.test_balls:
            frames = clips(kind, 1, self.config.frames, np.random.default_rng((TESTING, list(KINDS).index(kind))))
            rows[kind] = frames[1:]
            rows[f"{kind}, predicted"] = torch.sigmoid(roll_out(network, frames, self.config.fed))
        found = {"per_frame": per_frame, "fed": self.config.fed, **film(rows)}
        return found | self._record_strips(network) if self.config.strips else found

    def watch(self, network: nn.Module) -> dict[str, Any]:
        return {"correlation": self._record_strips(network)["correlation"]} if self.config.strips else {}

    @property
    def _recorded(self) -> int:
        return min(64, self.config.test_sequences)

    def _record_strips(self, network: nn.Module) -> dict[str, Any]:
        """Who is active in one clip, and over several how that goes with how much of the balls is in the own strip."""
        frames = clips(
            self.config.balls, self._recorded, self.config.frames, np.random.default_rng((TESTING, len(KINDS)))
        )
        core: Any = network.core
        with core.trace() as trace:
            network(frames[:-1])
        active = trace.active.float()  # (T, B, K)
        covered = torch.stack([part.sum((-2, -1)) for part in frames[:-1].tensor_split(self.config.num_rims, 2)], -1)
        return {
            "input": list(range(len(active))),
            "active": ["".join(map(str, rim)) for rim in active[:, 0].int().T.tolist()],
            "correlation": [correlation(active[..., k], covered[..., k]) for k in range(self.config.num_rims)],
        }

    def _losses(self, network: nn.Module, kind: str, sequences: int) -> Tensor:
        """(frames - 1, sequences)"""
        random = np.random.default_rng((TESTING, list(KINDS).index(kind)))
        parts = []
        for begin in range(0, sequences, self.config.batch_size):
            frames = clips(kind, min(self.config.batch_size, sequences - begin), self.config.frames, random)
            parts.append(frame_losses(roll_out(network, frames, self.config.fed), frames[1:]))
        return torch.cat(parts, 1)


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's, and 0 for what never changes."""
    a, b = (x.flatten().double() - x.double().mean() for x in (a, b))
    scale = (a.norm() * b.norm()).item()
    return (a @ b).item() / scale if scale else 0.0


def clips(kind: str, count: int, frames: int, random: np.random.Generator) -> Tensor:
    """Frames (frames, count, 64, 64) of 0 and 1."""
    wanted = KINDS[kind]
    which = random.integers(len(wanted.radii), size=(count, wanted.most))
    there = np.arange(wanted.most) < random.integers(wanted.fewest, wanted.most + 1, size=(count, 1))
    radius = np.array(wanted.radii)[which] * there
    balls = Balls(
        place(radius, random),
        draw_velocities(radius, wanted.speed, random),
        radius,
        np.array(wanted.inverse_masses)[which],
    )
    pictures = draw(simulate(balls, frames)[0], radius, SIDE)
    if kind == "curtain":
        corners = random.integers(SIDE - CURTAIN + 1, size=(count, 2))
        for sequence, (y, x) in enumerate(corners):
            pictures[:, sequence, y : y + CURTAIN, x : x + CURTAIN] = False
    return torch.from_numpy(pictures).float()
