"""Relational memory core (Santoro et al., "Relational recurrent neural networks", 2018, arXiv:1806.01822)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.memories.stepped import Cell, Parts, Stepped


class RMC(Stepped):
    """Slots of a memory attend to one another and to the input; gates decide what each unit takes over.

    Args:
        input_size: width of the input.
        hidden_size: width of the whole memory and of the output, which is the memory.
        num_layers: how many layers there are.
        num_rims: how many slots the memory has, so that it is divided like the RIMs it is compared with.
        heads: heads of the attention.

    Inputs and outputs as in :class:`rims_rl.core.memories.baselines.Baseline`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, num_rims: int = 6, heads: int = 2
    ) -> None:
        widths = [input_size] + [hidden_size] * (num_layers - 1)
        super().__init__([_RMCCell(width, hidden_size, num_rims, heads) for width in widths])


class _RMCCell(Cell):
    def __init__(self, input_size: int, hidden_size: int, slots: int, heads: int) -> None:
        size = hidden_size // slots
        if size * slots != hidden_size or size % heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_rims * heads = {slots} * {heads}, got {hidden_size}; "
                f"{max(1, size // heads) * heads * slots} would do"
            )
        super().__init__(input_size, hidden_size, {"memory": (slots, size)})
        self.heads = heads
        self.read = nn.Linear(input_size, size)
        self.qkv = nn.Linear(size, 3 * size)
        self.norm_attention, self.norm_mlp = nn.LayerNorm(size), nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))
        self.gates_input, self.gates_memory = nn.Linear(size, 2 * size), nn.Linear(size, 2 * size)

    def start(self) -> Parts:
        """Slots that differ from each other, as in the paper: rows of the identity."""
        return {"memory": torch.eye(*self.shapes["memory"]).to(self.read.weight)}

    def step(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        memory, x = state["memory"], self.read(x).unsqueeze(1)  # (B, slots, size), (B, 1, size)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, slots + 1, size / heads)
            for part in self.qkv(torch.cat([memory, x], 1)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q[:, :, :-1], k, v).transpose(1, 2).flatten(2)
        proposed = self.norm_attention(memory + attended)
        proposed = self.norm_mlp(proposed + self.mlp(proposed))
        take, keep = (self.gates_input(x) + self.gates_memory(memory.tanh())).chunk(2, -1)
        # the 1 lets a new memory keep most of what it has
        memory = torch.sigmoid(take) * proposed.tanh() + torch.sigmoid(keep + 1) * memory
        return memory.flatten(1), {"memory": memory}
