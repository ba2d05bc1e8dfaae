"""Recurrent entity network (Henaff et al., "Tracking the world state with recurrent entity networks", 2017,
arXiv:1612.03969)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.memories.stepped import Cell, Parts, Stepped


class EntNet(Stepped):
    """Blocks of memory, each with a key of its own; one is written to when the input resembles it or its key.

    The paper answers questions from its memory; here there is no question, and the output is the whole memory.

    Args:
        input_size: width of the input.
        hidden_size: width of the whole memory and of the output.
        num_layers: how many layers there are.
        num_rims: how many blocks the memory has, so that it is divided like the RIMs it is compared with.

    Inputs and outputs as in :class:`rims_rl.core.memories.baselines.Baseline`.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *, num_rims: int = 6) -> None:
        widths = [input_size] + [hidden_size] * (num_layers - 1)
        super().__init__([_EntNetCell(width, hidden_size, num_rims) for width in widths])


class _EntNetCell(Cell):
    def __init__(self, input_size: int, hidden_size: int, blocks: int) -> None:
        size = hidden_size // blocks
        if size * blocks != hidden_size:
            raise ValueError(
                f"hidden_size must be a multiple of num_rims={blocks}, got {hidden_size}; "
                f"{max(1, size) * blocks} would do"
            )
        super().__init__(input_size, hidden_size, {"memory": (blocks, size)})
        self.read = nn.Linear(input_size, size)
        self.keys = nn.Parameter(F.normalize(torch.randn(blocks, size), dim=-1))
        self.from_memory = nn.Linear(size, size, bias=False)
        self.from_key = nn.Linear(size, size, bias=False)
        self.from_input = nn.Linear(size, size, bias=False)
        self.activation = nn.PReLU()

    def start(self) -> Parts:
        """A block begins as its key."""
        return {"memory": self.keys}

    def step(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        memory, x = state["memory"], self.read(x).unsqueeze(1)  # (B, blocks, size), (B, 1, size)
        gate = torch.sigmoid((x * (memory + self.keys)).sum(-1, keepdim=True))
        proposed = self.activation(self.from_memory(memory) + self.from_key(self.keys) + self.from_input(x))
        memory = F.normalize(memory + gate * proposed, dim=-1)  # a fixed length is how it forgets
        return memory.flatten(1), {"memory": memory}
