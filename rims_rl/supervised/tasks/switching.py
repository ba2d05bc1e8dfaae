"""Switching systems: several linear systems take turns, and whoever follows them must keep them apart.

One of R systems has its turn at each step. It alone moves, driven by the input, and its new state is asked for; the
others wait where they are. So who should act, and who should sleep, is known. After the task of switching rules of
Mittal et al., "Is a modular architecture enough?", 2022, arXiv:2206.02713.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rims_rl.config.fields import Count, Fraction
from rims_rl.core import RIM
from rims_rl.core.rims.life import alignment, measures, usage
from rims_rl.supervised.task import TESTING, TRAINING, CoreNetwork, Task, TaskConfig, Tests, generator

DECAY = 0.95  # of a state in each of its turns
Mixture = Literal["equal", "half", "skewed"]


class SwitchingConfig(TaskConfig):
    rules: Annotated[int, Field(ge=2, le=16)]
    state_size: Count  # of each system
    drive_size: Count  # of the input that drives it
    switch: Fraction  # how often the turn passes on
    length: Count
    test_lengths: Annotated[list[Count], Field(min_length=1)]
    test_mixtures: Annotated[list[Mixture], Field(min_length=1)]  # training has equal
    embedding_size: Count


class Switching(Task):
    """Mean squared error of the state of the system whose turn it is; always saying zero has 1."""

    name: ClassVar[str] = "switching"
    title: ClassVar[str] = "Switching: linear systems that take turns"
    config_class: ClassVar[type[TaskConfig]] = SwitchingConfig
    bounded: ClassVar[dict[str, float]] = {"explained": 1.0}
    config: SwitchingConfig

    def network(self) -> nn.Module:
        config = self.config
        encoder = nn.Linear(config.drive_size + config.rules, config.embedding_size)
        return CoreNetwork(encoder, self.core(config.embedding_size), config.state_size, config.dropout)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        x, states, _ = self._sequences(
            self.config.batch_size, self.config.length, "equal", generator(TRAINING, seed, index)
        )
        return x, states

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        x, states = batch
        return F.mse_loss(network(x, len(x)), states)

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        found = {}
        for length in self.config.test_lengths:
            for mixture in self.config.test_mixtures:
                x, states, _ = self._test_sequences(sequences_of_each, length, mixture)
                answers = [network(part, length) for part in x.split(self.config.batch_size, 1)]
                error = F.mse_loss(torch.cat(answers, 1), states).item()
                explained = max(0.0, 1 - error / states.square().mean().item())
                found[f"{length}, {mixture}"] = {"mean squared error": error, "explained": explained}
        return found

    def watch(self, network: nn.Module) -> dict[str, Any]:
        """How alive the RIMs are, and whether each rule has one of its own."""
        if not isinstance(network.core, RIM):
            return {}
        x, _, rules = self._test_sequences(64, self.config.length, "equal")
        with network.core.trace() as trace:
            network(x, 1)
        used = {"alignment": alignment(trace.active, rules), "usage": usage(trace.active).tolist()}
        return used | measures(trace.active, trace.input_attention, trace.communication)

    def record(self, network: nn.Module) -> dict[str, Any]:
        return self.watch(network)

    def _test_sequences(self, count: int, length: int, mixture: Mixture) -> tuple[Tensor, Tensor, Tensor]:
        number = ("equal", "half", "skewed").index(mixture)
        return self._sequences(count, length, mixture, generator(TESTING, length, number))

    def _sequences(
        self, count: int, length: int, mixture: Mixture, random: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs (length, count, drive_size + rules), the states asked for (length, count, state_size), and whose turn
        it is (length, count)."""
        config = self.config
        rules = turns(count, length, shares(config.rules, mixture), config.switch, random)
        drive = torch.randn(length, count, config.drive_size, generator=random)
        move, enter = systems(config.rules, config.state_size, config.drive_size)
        state = torch.zeros(count, config.rules, config.state_size)
        row, asked = torch.arange(count), []
        for rule, u in zip(rules, drive, strict=True):
            new = torch.einsum("bij,bj->bi", move[rule], state[row, rule]) + torch.einsum("bij,bj->bi", enter[rule], u)
            state[row, rule] = new
            asked.append(new)
        return torch.cat([drive, F.one_hot(rules, config.rules).float()], -1), torch.stack(asked), rules


def systems(rules: int, state_size: int, drive_size: int) -> tuple[Tensor, Tensor]:
    """The systems, the same for every seed: what moves a state (rules, state_size, state_size), a rotation that
    forgets slowly, and how the drive enters it (rules, state_size, drive_size). States have a variance of 1."""
    random = generator(rules, state_size, drive_size)
    rotations, _ = torch.linalg.qr(torch.randn(rules, state_size, state_size, generator=random))
    enter = torch.randn(rules, state_size, drive_size, generator=random)
    enter *= (state_size * (1 - DECAY**2) / enter.square().sum((1, 2), keepdim=True)).sqrt()
    return DECAY * rotations, enter


def shares(rules: int, mixture: Mixture) -> Tensor:
    """How often each rule is drawn when the turn passes on."""
    weights = {
        "equal": torch.ones(rules),
        "half": (torch.arange(rules) < (rules + 1) // 2).float(),
        "skewed": 0.5 ** torch.arange(rules),
    }[mixture]
    return weights / weights.sum()


def turns(count: int, length: int, share: Tensor, switch: float, random: torch.Generator) -> Tensor:
    """Whose turn it is (length, count): the same as before, or, once in a while, one that is drawn anew."""
    drawn = torch.multinomial(share, length * count, True, generator=random).view(length, count)
    passes = torch.rand(length, count, generator=random) < switch
    passes[0] = True
    since = torch.where(passes, torch.arange(length).unsqueeze(1), 0).cummax(0).values
    return drawn.gather(0, since)
