"""RIMs with shared dynamics (Goyal et al., "Object files and schemata", 2020, arXiv:2006.16225): core ``scoff``."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.checks import require
from rims_rl.core.rims.cell import RIMCell, recur, smallest
from rims_rl.core.rims.cell_options import GATES


class SchemaCell(RIMCell):
    r"""A :class:`RIMCell` whose dynamics are a few cells that all RIMs share, the schemata: at each step every RIM
    picks the one that it is updated by.

    RIM :math:`k` reads :math:`r_k`; with schemata :math:`D_1 .. D_S`, each an LSTM or GRU cell,

    .. math::
        \begin{array}{ll}
        \hat h_{ks}, \hat c_{ks} = D_s(r_k, h_k, c_k)
            & \text{what each schema would make of RIM } k \\
        p_k = \mathrm{softmax}\big(h_k W^Q (\hat h_{ks} W^K_s)_{s=1..S}^\top / \sqrt{d}\big)
            & \text{its old state asks, the candidates answer} \\
        z_k = \text{one-hot}(\arg\max_s p_{ks})
            & \text{ties: the lowest index} \\
        \tilde h_k, c'_k = \textstyle\sum_s z_{ks} \hat h_{ks},\ \sum_s z_{ks} \hat c_{ks}
            & \text{one choice for both}
        \end{array}

    The choice is hard; its gradient is that of :math:`p_k` (straight-through: :math:`z_k + p_k -
    \mathrm{stop\_gradient}(p_k)` stands in its place). The rest of the step is RIMCell's. What RIM k has of its own
    stays as there: its input query and all of its communication. Only the dynamics and their choice are shared.

    The paper adds Gumbel noise to the choice. We leave it out: Stable-Baselines3 rolls out in evaluation mode and
    updates in training mode, and noise in one of them would make PPO compare two different policies. So at h = 0, where
    an episode begins, all schemata are equally good and every RIM takes the first; ``start="learned"`` changes that.

    Args:
        num_schemas: how many schemata there are.
        schema_key_size: size of the query and the keys of that choice; the paper's authors have 16 in their code.
        *args, **options: of :class:`RIMCell`.

    Attributes:
        weight_ih, weight_hh, bias_ih, bias_hh: as in RIMCell, but stacked over schemata: `(num_schemas, ...)`.
        schema_query: shared, `(schema_key_size, rim_size)`.
        schema_key: of each schema, `(num_schemas, schema_key_size, rim_size)`.

    Every RIM computes every schema, so that the dynamics cost ``num_schemas`` times those of RIMCell.
    """

    shared_weights: ClassVar[tuple[str, ...]] = (
        *RIMCell.shared_weights, "weight_ih", "weight_hh", "bias_ih", "bias_hh", "schema_query", "schema_key",
    )  # fmt: skip
    schema_query: nn.Parameter
    schema_key: nn.Parameter

    def __init__(self, *args: Any, num_schemas: int = 4, schema_key_size: int = 16, **options: Any) -> None:
        for name, size in (("num_schemas", num_schemas), ("schema_key_size", schema_key_size)):
            require(size >= 1, f"{name} must be at least 1, got {size}")
        # before the constructor of the cell, which makes the weights; nn.Module takes numbers even then
        self.num_schemas, self.schema_key_size = num_schemas, schema_key_size
        super().__init__(*args, **options)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        S, H, gates = self.num_schemas, self.rim_size, GATES[self.cell] * self.rim_size
        return super().weight_shapes() | {
            "weight_ih": (S, gates, self.input_value_size), "weight_hh": (S, gates, H),
            "bias_ih": (S, gates), "bias_hh": (S, gates),
            "schema_query": (self.schema_key_size, H), "schema_key": (S, self.schema_key_size, H),
        }  # fmt: skip

    def dynamics(self, read: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Of all candidates the one that each RIM picks."""
        from_read, from_state = (
            F.linear(x, weight.flatten(0, 1), bias.flatten()).unflatten(-1, (self.num_schemas, -1))  # (B, K, S, gates)
            for x, weight, bias in ((read, self.weight_ih, self.bias_ih), (h, self.weight_hh, self.bias_hh))
        )
        h_each, c_each = recur(self.cell, from_read, from_state, h.unsqueeze(2), c.unsqueeze(2))  # (B, K, S, H)
        choice = self.choose_schema(h, h_each).unsqueeze(-1)
        h_new = (choice * h_each).sum(2)
        return h_new, c if self.cell == "gru" else (choice * c_each).sum(2)

    def choose_schema(self, h: Tensor, candidates: Tensor) -> Tensor:
        """Which schema each RIM takes: 1 there and 0 elsewhere, `(B, K, S)`, with the gradient of the attention."""
        query = F.linear(h, self.schema_query).unsqueeze(2)  # (B, K, 1, d)
        # (B, K, S, 1, H) times (S, H, d)
        keys = torch.matmul(candidates.unsqueeze(-2), self.schema_key.transpose(1, 2)).squeeze(-2)
        attention = torch.softmax((query * keys).sum(-1) / math.sqrt(self.schema_key_size), -1)
        chosen = smallest(-attention, 1, dim=-1).to(attention.dtype)
        return chosen + (attention - attention.detach())
