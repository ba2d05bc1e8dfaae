"""Differentiable neural computer (Graves et al., "Hybrid computing using a neural network with dynamic external
memory", Nature 538, 2016)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.memories.stepped import Cell, Parts, Stepped

EQUAL = 1e-6  # usages that differ by less


class DNC(Stepped):
    """An LSTM beside a memory that knows which slots are in use, and in what order they were written.

    Args:
        input_size: width of the input.
        hidden_size: units of the LSTM, and width of the output.
        num_layers: how many layers there are, each with a memory of its own.
        slots: of the memory.
        slot_size: width of one slot.
        read_heads: how many heads read; one writes.

    Inputs and outputs as in :class:`rims_rl.core.memories.baselines.Baseline`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        slots: int = 16,
        slot_size: int = 16,
        read_heads: int = 4,
    ) -> None:
        widths = [input_size] + [hidden_size] * (num_layers - 1)
        super().__init__([_DNCCell(width, hidden_size, slots, slot_size, read_heads) for width in widths])


class _DNCCell(Cell):
    def __init__(self, input_size: int, hidden_size: int, slots: int, slot_size: int, read_heads: int) -> None:
        shapes = {
            "h": (hidden_size,), "c": (hidden_size,), "memory": (slots, slot_size), "usage": (slots,),
            "links": (slots, slots), "last_written": (slots,), "write_weights": (slots,),
            "read_weights": (read_heads, slots), "read": (read_heads, slot_size),
        }  # fmt: skip
        super().__init__(input_size, hidden_size, shapes)
        read_width = read_heads * slot_size
        self.sizes = [read_width, read_heads, slot_size, 1, slot_size, slot_size, read_heads, 1, 1, 3 * read_heads]
        self.controller = nn.LSTMCell(input_size + read_width, hidden_size)
        self.interface = nn.Linear(hidden_size, sum(self.sizes))
        self.from_read = nn.Linear(read_width, hidden_size)

    def step(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        h, c = self.controller(torch.cat([x, state["read"].flatten(1)], -1), (state["h"], state["c"]))
        (
            read_keys, read_sharpness, write_key, write_sharpness, erase, add, free, allocate, write_gate, modes,
        ) = self.interface(h).split(self.sizes, -1)  # fmt: skip
        heads = read_sharpness.shape[-1]

        # which slots are free: in use is what was written and has not been freed by a head that read it
        freed = torch.sigmoid(free).unsqueeze(-1) * state["read_weights"]  # (B, heads, slots)
        usage, written = state["usage"], state["write_weights"]
        usage = (usage + written - usage * written) * (1 - freed).prod(1)

        # write to free slots or to such as resemble the key
        content = _similar(state["memory"], write_key.unsqueeze(1), write_sharpness).squeeze(1)
        where = torch.lerp(content, _allocation(usage), torch.sigmoid(allocate))
        write = torch.sigmoid(write_gate) * where  # (B, slots)
        kept = 1 - write.unsqueeze(-1) * torch.sigmoid(erase).unsqueeze(1)
        memory = state["memory"] * kept + write.unsqueeze(-1) * add.unsqueeze(1)

        links, last_written = _link(state["links"], state["last_written"], write)

        # read backwards or forwards in the order of writing, or what resembles the key
        backward = state["read_weights"] @ links
        forward = state["read_weights"] @ links.transpose(1, 2)
        content = _similar(memory, read_keys.unflatten(-1, (heads, -1)), read_sharpness)
        share = modes.unflatten(-1, (heads, 3)).softmax(-1).unsqueeze(-1)  # (B, heads, 3, 1)
        reading = (share * torch.stack([backward, content, forward], 2)).sum(2)
        read = reading @ memory  # (B, heads, slot_size)

        parts = {
            "h": h, "c": c, "memory": memory, "usage": usage, "links": links, "last_written": last_written,
            "write_weights": write, "read_weights": reading, "read": read,
        }  # fmt: skip
        return h + self.from_read(read.flatten(1)), parts


def _similar(memory: Tensor, keys: Tensor, sharpness: Tensor) -> Tensor:
    """Attention of each key `(B, heads, slot_size)` over the slots, `(B, heads, slots)`."""
    similar = F.cosine_similarity(keys.unsqueeze(2), memory.unsqueeze(1), dim=-1, eps=1e-6)
    return torch.softmax((1 + F.softplus(sharpness)).unsqueeze(-1) * similar, -1)


def _allocation(usage: Tensor) -> Tensor:
    """The most to the slot that is used least, the rest of it to the next, and so on."""
    mine, others = usage.unsqueeze(-1), usage.unsqueeze(-2)  # (B, slots, 1), (B, 1, slots)
    index = torch.arange(usage.shape[-1], device=usage.device)
    lower = index < index.unsqueeze(-1)  # of equal ones, the lowest index comes first
    # Slots nobody has written to are used equally, but for rounding, which must not decide: it differs in an export.
    before = (others < mine - EQUAL) | (((others - mine).abs() <= EQUAL) & lower)
    return (1 - usage) * torch.where(before, others, 1.0).prod(-1)


def _link(links: Tensor, last_written: Tensor, write: Tensor) -> tuple[Tensor, Tensor]:
    """links[i, j]: how much slot i was written right after slot j."""
    after, before = write.unsqueeze(-1), write.unsqueeze(1)
    links = (1 - after - before) * links + after * last_written.unsqueeze(1)
    links = links * (1 - torch.eye(links.shape[-1], dtype=links.dtype, device=links.device))
    return links, (1 - write.sum(-1, keepdim=True)) * last_written + write
