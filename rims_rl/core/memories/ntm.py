"""Neural Turing machine (Graves et al., 2014, arXiv:1410.5401)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.memories.stepped import Cell, Parts, Stepped


class NTM(Stepped):
    """An LSTM beside a memory of slots, which one head reads and one head writes, by content and by moving.

    Args:
        input_size: width of the input.
        hidden_size: units of the LSTM. The output is those and what was read.
        num_layers: how many layers there are, each with a memory of its own.
        slots: of the memory.
        slot_size: width of one slot.

    Inputs and outputs as in :class:`rims_rl.core.memories.baselines.Baseline`.

    A fresh memory holds a small constant, after Collier and Beel ("Implementing neural Turing machines", 2018,
    arXiv:1807.08518); where the heads point at first is learned.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, slots: int = 128, slot_size: int = 20
    ) -> None:
        widths = [input_size] + [hidden_size + slot_size] * (num_layers - 1)
        super().__init__([_NTMCell(width, hidden_size, slots, slot_size) for width in widths])


class _NTMCell(Cell):
    def __init__(self, input_size: int, hidden_size: int, slots: int, slot_size: int) -> None:
        shapes = {
            "h": (hidden_size,), "c": (hidden_size,), "read": (slot_size,), "memory": (slots, slot_size),
            "read_weights": (slots,), "write_weights": (slots,),
        }  # fmt: skip
        super().__init__(input_size, hidden_size + slot_size, shapes)
        self.controller = nn.LSTMCell(input_size + slot_size, hidden_size)
        # a head says: key, sharpness, content or location, where to move (3), how much to focus
        self.address = nn.ModuleDict({head: nn.Linear(hidden_size, slot_size + 6) for head in ("read", "write")})
        self.change = nn.Linear(hidden_size, 2 * slot_size)  # what to erase and to add
        self.first = nn.ParameterDict({head: nn.Parameter(0.1 * torch.randn(slots)) for head in ("read", "write")})

    def start(self) -> Parts:
        pointing = {f"{head}_weights": self.first[head].softmax(-1) for head in ("read", "write")}
        return {"memory": torch.full(self.shapes["memory"], 1e-6).to(self.first["read"]), **pointing}

    def step(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        h, c = self.controller(torch.cat([x, state["read"]], -1), (state["h"], state["c"]))
        memory = state["memory"]
        write = self._weights("write", h, memory, state["write_weights"])
        erase, add = self.change(h).chunk(2, -1)
        kept = 1 - write.unsqueeze(-1) * torch.sigmoid(erase).unsqueeze(1)  # (B, slots, slot_size)
        memory = memory * kept + write.unsqueeze(-1) * torch.tanh(add).unsqueeze(1)
        reading = self._weights("read", h, memory, state["read_weights"])
        read = torch.einsum("bn,bnm->bm", reading, memory)
        parts = {"h": h, "c": c, "read": read, "memory": memory, "read_weights": reading, "write_weights": write}
        return torch.cat([h, read], -1), parts

    def _weights(self, head: str, h: Tensor, memory: Tensor, before: Tensor) -> Tensor:
        """Where a head points, `(B, slots)`: the paper's equations 5 to 9."""
        addressing = self.address[head](h)
        key, sharpness, gate, moves, focus = addressing.split([memory.shape[-1], 1, 1, 3, 1], -1)
        similar = F.cosine_similarity(key.tanh().unsqueeze(1), memory, dim=-1)
        content = torch.softmax(F.softplus(sharpness) * similar, -1)
        pointed = torch.lerp(before, content, torch.sigmoid(gate))
        neighbours = torch.stack([pointed.roll(1, -1), pointed, pointed.roll(-1, -1)], -1)
        moved = (neighbours * moves.softmax(-1).unsqueeze(1)).sum(-1)
        sharp = (moved + 1e-12) ** (1 + F.softplus(focus))  # 0 has no finite derivative
        weights: Tensor = sharp / sharp.sum(-1, keepdim=True)
        return weights
