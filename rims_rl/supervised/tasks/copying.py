"""The copying task: keep ten digits over a span of blanks, then give them back (section 4.1, appendix D.1)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rims_rl.config.fields import Count
from rims_rl.core import RIM
from rims_rl.supervised.task import TESTING, TRAINING, CoreNetwork, Task, TaskConfig, Tests, generator

MARKER = 9  # 0 is blank, 1 to 8 are digits: the paper's "0 to 8" could not be told from the blank


class CopyingConfig(TaskConfig):
    digits: Count
    span: Count  # of blanks, in training
    test_spans: Annotated[list[Count], Field(min_length=1)]
    embedding_size: Count


class Copying(Task):
    """Cross entropy and accuracy over the last steps, where the digits are to come back; guessing has ln 8 = 2.08."""

    name: ClassVar[str] = "copying"
    title: ClassVar[str] = "Copying: remember ten digits over blank steps"
    config_class: ClassVar[type[TaskConfig]] = CopyingConfig
    bounded: ClassVar[dict[str, float]] = {"accuracy": 1.0}
    config: CopyingConfig

    def network(self) -> nn.Module:
        size = self.config.embedding_size
        return CoreNetwork(nn.Embedding(MARKER + 1, size), self.core(size), MARKER, self.config.dropout)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        return sequences(self.config.batch_size, self.config.digits, self.config.span, generator(TRAINING, seed, index))

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        x, digits = batch
        return F.cross_entropy(network(x, len(digits)).flatten(0, 1), digits.flatten())

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        config, found = self.config, {}
        for span in config.test_spans:
            x, digits = sequences(sequences_of_each, config.digits, span, generator(TESTING, span))
            parts = [network(part, config.digits) for part in x.split(config.batch_size, 1)]
            found[f"span {span}"] = measures(torch.cat(parts, 1), digits)
        return found

    def record(self, network: nn.Module) -> dict[str, Any]:
        """Who is active in one new sequence, as in the paper's figure 2."""
        if not isinstance(network.core, RIM):
            return {}
        x, digits = sequences(1, self.config.digits, self.config.span, generator(TESTING, 0))
        with network.core.trace() as trace:
            answer = network(x, self.config.digits).argmax(-1)
        rims = ["".join(map(str, rim)) for rim in trace.active[:, 0].int().T.tolist()]
        return {
            "input": x[:, 0].tolist(),
            "digits": digits[:, 0].tolist(),
            "answer": answer[:, 0].tolist(),
            "active": rims,
        }


def sequences(count: int, digits: int, span: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs (digits + span + 1 + digits, count), and the digits (digits, count) to give back in the last steps."""
    wanted = torch.randint(1, MARKER, (digits, count), generator=random)
    x = F.pad(wanted, (0, 0, 0, span + 1 + digits))
    x[digits + span] = MARKER
    return x, wanted


def measures(logits: Tensor, digits: Tensor) -> dict[str, float]:
    return {
        "cross entropy": F.cross_entropy(logits.flatten(0, 1), digits.flatten()).item(),
        "accuracy": (logits.argmax(-1) == digits).float().mean().item(),
    }
