"""RIMs that communicate through a few slots (Goyal et al., "Coordination among neural modules through a shared global
workspace", 2021, arXiv:2103.01197): core ``rims-workspace``."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.checks import require
from rims_rl.core.core import State
from rims_rl.core.rims.cell import RIMCell, RIMStep, per_rim


class WorkspaceCell(RIMCell):
    r"""A :class:`RIMCell` whose RIMs do not hear each other: those that are active write into a few slots, the
    workspace, and read what all of them hold then. Slots persist through an episode.

    After the dynamics of RIMCell, active RIMs :math:`S` have the state :math:`\tilde h_k`; slot :math:`m` holds
    :math:`M_m`, and :math:`e` is the key size:

    .. math::
        \begin{array}{ll}
        w_m = \mathrm{softmax}_{k \in S}\big(M_m U^q (\tilde h_k \tilde W^e_k)^\top / \sqrt{e}\big)
            & \text{slots ask, active RIMs answer} \\
        \hat M_m = \textstyle\sum_{k \in S} w_{mk} \tilde h_k \tilde W^v_k
            & \text{what would be written} \\
        g = \frac{1}{|S|} \textstyle\sum_{k \in S} \mathrm{relu}(\tilde h_k G_k)
            & \\
        i_m, f_m = \sigma\big((g + \tanh(M_m) U^m) U^g + b\big)
            & \text{input and forget gate of each unit} \\
        M'_m = i_m \tanh(\hat M_m) + f_m M_m
            & \text{if nobody is active, } M'_m = M_m \\
        p_k = \mathrm{softmax}_m\big(\tilde h_k \tilde W^q_k (M'_m U^e)^\top / \sqrt{e}\big)
            & \text{RIMs ask, slots answer} \\
        h'_k = \tilde h_k + \big(\textstyle\sum_m p_{km} M'_m U^v\big) \tilde W^o_k
            & k \in S;\ \text{else } h'_k = \tilde h_k
        \end{array}

    With several heads what they write or read is concatenated, so that a slot has ``comm_heads * comm_value_size``
    units. An episode begins with the rows of the identity in the slots, as in the relational memory core, so that slots
    differ; the bias :math:`b` begins with 0 for the input gate and 1 for the forget gate.

    The paper lets all RIMs read. Here only the active ones do, as everywhere in RIMCell, unless ``asleep="listen"``.

    Args:
        num_slots: how many slots there are, at most ``comm_heads * comm_value_size``.
        *args, **options: of :class:`RIMCell`; ``communication`` is True or ``"gated"``, which says how what was read is
            added to h. ``comm_top_k`` and ``hear`` are about hearing each other, and must be left as they are.

    Inputs and outputs as in :class:`RIMCell`, but the state is wider than ``hidden_size``: behind the RIMs' units h has
    the slots, one after the other, and c has as many numbers that are carried untouched. ``RIMStep.communication`` and
    traces say how much RIM k read of what RIM j wrote at this step, :math:`\sum_m p_{km} w_{mj}`, both averaged over
    heads before: rows of active RIMs sum to 1. What slots kept of earlier steps is not told apart there. RIMs that are
    dropped neither write nor read; what the slots hold already stays.

    Attributes:
        comm_qkv, comm_out, comm_gate: of each RIM, as in RIMCell: queries read slots, keys and values are written.
        write_gate: of each RIM, :math:`G_k`, `(num_rims, slot_size, rim_size)`.
        slot_qkv: shared, :math:`U^q, U^e, U^v` of each head, `(comm_heads * (2 * comm_key_size + comm_value_size),
            slot_size)`.
        slot_memory, slot_gates, slot_bias: shared, :math:`U^m, U^g, b`, `(slot_size, slot_size)`,
            `(2 * slot_size, slot_size)` and `(2 * slot_size)`.
    """

    replays: ClassVar[bool] = True
    shared_weights: ClassVar[tuple[str, ...]] = (
        *RIMCell.shared_weights, "slot_qkv", "slot_memory", "slot_gates", "slot_bias",
    )  # fmt: skip
    write_gate: nn.Parameter
    slot_qkv: nn.Parameter
    slot_memory: nn.Parameter
    slot_gates: nn.Parameter
    slot_bias: nn.Parameter

    def __init__(self, *args: Any, num_slots: int = 4, **options: Any) -> None:
        require(num_slots >= 1, f"num_slots must be at least 1, got {num_slots}")
        for name, default, why in (
            ("comm_top_k", None, "RIMs hear slots"), ("hear", "states", "RIMs that are not active write nothing"),
        ):  # fmt: skip
            value = options.get(name, default)
            require(value == default, f"{name} must be {default!r} with a workspace, got {value!r}: {why}")
        require(
            options.get("communication", True) is not False,
            "communication must be True or 'gated' with a workspace, got False: it would have no use",
        )
        self.num_slots = num_slots  # before the constructor of the cell, which makes the weights
        super().__init__(*args, **options)
        require(
            num_slots <= self.slot_size,
            f"num_slots must be at most comm_heads * comm_value_size = {self.slot_size}, got {num_slots}: slots begin "
            "as rows of the identity, which have to differ",
        )

    @property
    def slot_size(self) -> int:
        return self.comm_heads * self.comm_value_size

    @property
    def state_size(self) -> int:
        return self.hidden_size + self.num_slots * self.slot_size

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        size = self.slot_size
        return super().weight_shapes() | {
            "write_gate": (self.num_rims, size, self.rim_size),
            "slot_qkv": (self.comm_heads * (2 * self.comm_key_size + self.comm_value_size), size),
            "slot_memory": (size, size), "slot_gates": (2 * size, size), "slot_bias": (2 * size,),
        }  # fmt: skip

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            take, keep = self.slot_bias.chunk(2)
            take.zero_()
            keep.fill_(1)

    def initial_state(self, batch: int) -> State:
        h, c = super().initial_state(batch)
        slots = torch.eye(self.num_slots, self.slot_size, device=h.device, dtype=h.dtype).flatten().expand(batch, -1)
        return torch.cat([h, slots], -1), F.pad(c, (0, slots.shape[-1]))

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> RIMStep:
        widths = [self.hidden_size, self.num_slots * self.slot_size]
        (h, slots), (c, beside_c) = h.split(widths, -1), c.split(widths, -1)
        h, c, _, active, attention = self.update(x, h, c)
        query, key, value = self._heads(per_rim(h, self.comm_qkv))
        slots, written = self.write(h, key, value, active, slots.unflatten(-1, (self.num_slots, -1)))
        received, reading = self.read_slots(query, slots)
        message = F.dropout(self.message(received), self.comm_dropout, self.training)
        hears = self.who_hears(active)
        h = torch.where(hears, self.add_message(h, message), h)
        listening = torch.matmul(reading, written) * hears
        h, c = torch.cat([h.flatten(1), slots.flatten(1)], -1), torch.cat([c.flatten(1), beside_c], -1)
        return RIMStep(h, c, active, attention, listening)

    def write(self, h: Tensor, key: Tensor, value: Tensor, active: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The slots `(B, M, slot_size)` after active RIMs have written, and the share `(B, M, K)` of each RIM in it."""
        anybody = active.any(-1)[:, None, None]  # else all would be masked, and nothing is not a number
        query, _, _ = self._heads(F.linear(slots, self.slot_qkv))
        logits = torch.einsum("bmhe,bkhe->bhmk", query, key) / math.sqrt(self.comm_key_size)
        silent = (~active.unsqueeze(1) & anybody).unsqueeze(1)  # (B, 1, 1, K)
        weights = torch.softmax(logits.masked_fill(silent, -math.inf), -1)
        written = torch.einsum("bhmk,bkhv->bmhv", weights, value).flatten(2)
        told = torch.relu(per_rim(h, self.write_gate)) * active.unsqueeze(-1)
        mean = told.sum(1, keepdim=True) / active.sum(-1).clamp_min(1)[:, None, None]
        gates = F.linear(mean + F.linear(slots.tanh(), self.slot_memory), self.slot_gates, self.slot_bias)
        take, keep = torch.sigmoid(gates).chunk(2, -1)
        return torch.where(anybody, take * written.tanh() + keep * slots, slots), weights.mean(1)

    def read_slots(self, query: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """What each RIM would receive, all heads together, `(B, K, slot_size)`, and from which slot, `(B, K, M)`."""
        _, key, value = self._heads(F.linear(slots, self.slot_qkv))
        logits = torch.einsum("bkhe,bmhe->bhkm", query, key) / math.sqrt(self.comm_key_size)
        weights = torch.softmax(logits, -1)
        return torch.einsum("bhkm,bmhv->bkhv", weights, value).flatten(2), weights.mean(1)

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, `(B, ..., heads, size)`."""
        sizes = [self.comm_key_size, self.comm_key_size, self.comm_value_size]
        query, key, value = qkv.unflatten(-1, (self.comm_heads, -1)).split(sizes, -1)
        return query, key, value
