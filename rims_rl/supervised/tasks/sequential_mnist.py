"""Sequential MNIST: a digit read pixel by pixel, at other resolutions than in training (section 4.1, appendix D.3)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count
from rims_rl.supervised.data.mnist import mnist
from rims_rl.supervised.task import TESTING, TRAINING, CoreNetwork, Task, TaskConfig, Tests, generator

Side = Annotated[int, Field(ge=1, le=28)]


class SequentialMnistConfig(TaskConfig):
    side: Side  # of the images of training, in pixels
    test_sides: Annotated[list[Side], Field(min_length=1)]
    embedding_size: Count


class SequentialMnist(Task):
    """Accuracy on the test set, of which ``test_sequences`` images are taken.

    Pixels are embedded: as bare numbers, dark ones could not be told from the null element of the input attention.
    """

    name: ClassVar[str] = "sequential_mnist"
    title: ClassVar[str] = "Sequential MNIST: digits pixel by pixel, at other resolutions"
    config_class: ClassVar[type[TaskConfig]] = SequentialMnistConfig
    bounded: ClassVar[dict[str, float]] = {"accuracy": 1.0}
    config: SequentialMnistConfig

    def network(self) -> nn.Module:
        images = mnist("train", self.data_dir)[0]  # both parts now, to say at once when files are missing
        mnist("t10k", self.data_dir)
        if self.config.batch_size > len(images):
            raise UserError(f"batch_size must be at most {len(images)}, all images, got {self.config.batch_size}")
        size = self.config.embedding_size
        return CoreNetwork(nn.Embedding(2, size), self.core(size), 10, self.config.dropout)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        images, labels = mnist("train", self.data_dir)
        size = self.config.batch_size
        epoch, number = divmod(index, len(images) // size)
        order = torch.randperm(len(images), generator=generator(TRAINING, seed, epoch))
        chosen = order[number * size : (number + 1) * size]
        return pixels(images[chosen], self.config.side), labels[chosen]

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        x, labels = batch
        return F.cross_entropy(network(x, 1)[0], labels)

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        images, labels = mnist("t10k", self.data_dir)
        chosen = torch.randperm(len(images), generator=generator(TESTING))[:sequences_of_each]
        images, labels, found = images[chosen], labels[chosen], {}
        for side in self.config.test_sides:
            parts = [network(part, 1)[0] for part in pixels(images, side).split(self.config.batch_size, 1)]
            found[f"{side} x {side}"] = measures(torch.cat(parts), labels)
        return found


def pixels(images: Tensor, side: int) -> Tensor:
    """Bytes (N, 28, 28) -> 0 and 1 in the order of reading, (side * side, N): nearest neighbours, then binary."""
    small = F.interpolate(images.unsqueeze(1).float(), size=(side, side), mode="nearest")
    return (small > 127).long().flatten(1).T.contiguous()


def measures(logits: Tensor, labels: Tensor) -> dict[str, float]:
    return {
        "accuracy": (logits.argmax(-1) == labels).float().mean().item(),
        "cross entropy": F.cross_entropy(logits, labels).item(),
    }
