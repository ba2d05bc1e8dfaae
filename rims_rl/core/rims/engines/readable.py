"""A plain loop over the cell's own equations: slow, and right for whatever a subclass makes of them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.engines.engine import Engine
from rims_rl.core.rims.trace import Records


class Readable(Engine):
    name = "readable"

    def refusal(self, cell: RIMCell, x: Tensor) -> None:
        return None

    def run(
        self,
        cell: RIMCell,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        starts: Tensor | None = None,
        records: Records | None = None,
        replayed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps = []
        if replayed is not None:
            cell = copy.copy(cell)  # others may be using it
        for t in range(x.shape[0]):
            if starts is not None:
                going_on, first = (starts[t] == 0).unsqueeze(-1), cell.initial_state(x.shape[1])
                h, c = (torch.where(going_on, now, new) for now, new in zip((h, c), first, strict=True))
            if replayed is not None:
                cell.replayed = replayed[t]
            steps.append(cell.step_with_hooks(x[t], h, c))
            h, c = steps[-1].h, steps[-1].c
        if records is not None:
            _, _, *rest = (torch.stack(part).detach() for part in zip(*steps, strict=True))
            records.add(*(rest[:1] if records.only_active else rest))
        return torch.stack([step.h[:, : cell.hidden_size] for step in steps]), h, c
