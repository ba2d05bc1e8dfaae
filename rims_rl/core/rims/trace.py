"""What happened inside a RIM layer, step by step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Record(NamedTuple):
    """One layer in one call, or in several joined along time: T steps, batch B, K RIMs, N elements."""

    active: Tensor  # (T, B, K) bool
    input_attention: Tensor  # (T, B, K, N + 1), null last, averaged over heads; what competition took away is zero
    communication: Tensor  # (T, B, K, K), averaged over heads, rows of inactive RIMs zero


NOTHING = torch.empty(0, 0)


class Records(list[Record]):
    """What an engine writes down. If ``only_active``, the other two fields stay empty, which costs much less."""

    def __init__(self, only_active: bool = False) -> None:
        super().__init__()
        self.only_active = only_active

    def add(self, active: Tensor, input_attention: Tensor = NOTHING, communication: Tensor = NOTHING) -> None:
        self.append(Record(active, input_attention, communication))


class Trace:
    """What :meth:`rims_rl.RIM.trace` yields: :attr:`layers` and, of the last layer, the three fields of Record.

    Calls are joined along time, so all calls inside one trace need the same batch and the same number of elements.
    """

    def __init__(self, num_layers: int, batch_first: bool = False, only_active: bool = False) -> None:
        self._records: list[list[Record]] = [[] for _ in range(num_layers)]
        self._batch_first, self.only_active = batch_first, only_active

    def add(self, layer: int, records: list[Record]) -> None:
        self._records[layer] += records

    def clear(self) -> None:
        """Forget what was recorded so far."""
        for records in self._records:
            records.clear()

    @property
    def layers(self) -> list[Record]:
        """One record per layer, from the one that reads the input to the last."""
        if not self._records[0]:
            raise RuntimeError("the trace is empty: call the RIM inside `with rim.trace() as trace:`")
        joined = [
            records[0] if len(records) == 1 else Record(*map(torch.cat, zip(*records, strict=True)))
            for records in self._records
        ]
        if self._batch_first:
            return [Record(*(field.transpose(0, 1) for field in record)) for record in joined]
        return joined

    @property
    def active(self) -> Tensor:
        return self.layers[-1].active

    @property
    def input_attention(self) -> Tensor:
        return self.layers[-1].input_attention

    @property
    def communication(self) -> Tensor:
        return self.layers[-1].communication
