"""The adding task: the sum of the marked numbers of a long stream (appendix D.2)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count
from rims_rl.supervised.task import TESTING, TRAINING, CoreNetwork, Task, TaskConfig, Tests, generator

CLOSE = 0.04  # an answer this near counts as right, a custom of this task


class AddingConfig(TaskConfig):
    length: Count
    numbers: Count  # how many are marked
    test_lengths: Annotated[list[Count], Field(min_length=1)]
    test_numbers: Annotated[list[Count], Field(min_length=1)]
    embedding_size: Count


class Adding(Task):
    """Mean squared error of the sum, at the last step; always saying the mean has 1/12 for each number."""

    name: ClassVar[str] = "adding"
    title: ClassVar[str] = "Adding: the sum of the marked numbers of a stream"
    config_class: ClassVar[type[TaskConfig]] = AddingConfig
    bounded: ClassVar[dict[str, float]] = {f"within {CLOSE}": 1.0}
    config: AddingConfig

    def network(self) -> nn.Module:
        config = self.config
        for marked, length in ((config.numbers, config.length), (max(config.test_numbers), min(config.test_lengths))):
            if marked > length:
                raise UserError(f"of {length} numbers, {marked} cannot be marked; give a greater length")
        return CoreNetwork(nn.Linear(2, config.embedding_size), self.core(config.embedding_size), 1, config.dropout)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        config = self.config
        return sequences(config.batch_size, config.length, config.numbers, generator(TRAINING, seed, index))

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        x, total = batch
        return F.mse_loss(network(x, 1).flatten(), total)

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        found = {}
        for numbers in self.config.test_numbers:
            for length in self.config.test_lengths:
                x, total = sequences(sequences_of_each, length, numbers, generator(TESTING, length, numbers))
                parts = [network(part, 1).flatten() for part in x.split(self.config.batch_size, 1)]
                found[f"{numbers} of {length}"] = measures(torch.cat(parts), total)
        return found


def sequences(count: int, length: int, numbers: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs (length, count, 2), a number between 0 and 1 and whether it is marked; and the sums (count)."""
    values = torch.rand(length, count, generator=random)
    places = torch.rand(length, count, generator=random).argsort(0)[:numbers]
    marks = torch.zeros(length, count).scatter_(0, places, 1.0)
    return torch.stack([values, marks], -1), (values * marks).sum(0)


def measures(answers: Tensor, totals: Tensor) -> dict[str, float]:
    return {
        "mean squared error": F.mse_loss(answers, totals).item(),
        f"within {CLOSE}": ((answers - totals).abs() < CLOSE).float().mean().item(),
    }
