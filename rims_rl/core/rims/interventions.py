"""RIMs taken out of a layer, or made to be active: what :meth:`rims_rl.RIM.drop` and :meth:`rims_rl.RIM.force` do."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from rims_rl.core.rims.at_rest import AtRest
from rims_rl.core.rims.cell import RIMCell, RIMStep
from rims_rl.core.rims.engines.engine import Engine
from rims_rl.core.rims.trace import Records


class Intervened:
    """A layer with fewer RIMs than ``cell``, which shares its weights, and whose results are as wide as the cell's.

    Engines take it as it is, and need not know that RIMs can be dropped.
    """

    def __init__(self, cell: RIMCell, dropped: Collection[int], forced: Collection[int]) -> None:
        if made := cell.weight_shapes().keys() - cell._parameters.keys():
            raise ValueError(
                f"RIMs cannot be dropped or forced while {min(made)} is made of other weights, by pruning or by a "
                "parametrization; make that permanent first, with prune.remove or remove_parametrizations"
            )
        kept = [k for k in range(cell.num_rims) if k not in dropped]
        self._num_rims, self._rims = cell.num_rims, torch.tensor(kept, device=cell.input_value.device)
        self._hidden_size = cell.hidden_size
        self.cell = copy.copy(cell)
        self.cell.at_rest = AtRest()
        weights: dict[str, Any] = dict(cell.named_parameters(recurse=False))
        # slices, through which gradients reach the cell's own
        self.cell._parameters = {n: w if n in cell.shared_weights else w[self._rims] for n, w in weights.items()}
        self.cell._buffers = {n: b if b is None else b[self._rims] for n, b in cell._buffers.items()}
        self.cell.num_rims, self.cell.hidden_size = len(kept), len(kept) * cell.rim_size
        self.cell.num_active = min(cell.num_active, len(kept))
        self.cell.rims = kept
        if cell.comm_top_k is not None:
            self.cell.comm_top_k = min(cell.comm_top_k, len(kept))
        if forced:
            self.cell.forced = torch.tensor([kept.index(k) for k in sorted(forced)], device=self._rims.device)

    def run(
        self,
        engine: Engine,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        starts: Tensor | None,
        records: Records | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What ``engine`` makes of this layer. The other arguments and the results are those of :meth:`Engine.run`."""
        inside = None if records is None else Records(records.only_active)
        output, h, c = engine.run(self.cell, x, self._narrow(h), self._narrow(c), starts, inside)
        if records is not None and inside is not None:
            for record in inside:
                records.add(*([self._widen(record.active, -1)] if records.only_active else self._widen_inside(record)))
        return self._widen_state(output), self._widen_state(h), self._widen_state(c)

    def step_with_hooks(self, x: Tensor, h: Tensor, c: Tensor) -> RIMStep:
        """The call of :meth:`RIMCell.step_with_hooks`."""
        h, c, *inside = self.cell.step_with_hooks(x, self._narrow(h), self._narrow(c))
        return RIMStep(self._widen_state(h), self._widen_state(c), *self._widen_inside(inside))

    def _narrow(self, state: Tensor) -> Tensor:
        rims, beside = _split(state, self._hidden_size)
        rims = rims.unflatten(-1, (self._num_rims, -1)).index_select(-2, self._rims)
        return torch.cat([rims.flatten(-2), beside], -1)

    def _widen_state(self, state: Tensor) -> Tensor:
        rims, beside = _split(state, self.cell.hidden_size)
        rims = self._widen(rims.unflatten(-1, (len(self._rims), -1)), -2)
        return torch.cat([rims.flatten(-2), beside], -1)

    def _widen_inside(self, inside: Any) -> tuple[Tensor, Tensor, Tensor]:
        active, input_attention, communication = inside
        communication = self._widen(self._widen(communication, -1), -2)
        return self._widen(active, -1), self._widen(input_attention, -2), communication

    def _widen(self, x: Tensor, dim: int) -> Tensor:
        """Zeros where the RIMs are that were dropped."""
        shape = list(x.shape)
        shape[dim] = self._num_rims
        return x.new_zeros(shape).index_copy(dim, self._rims, x)


def _split(state: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """What RIMs have of it, and a memory beside them, if there is one."""
    return state[..., :size], state[..., size:]
