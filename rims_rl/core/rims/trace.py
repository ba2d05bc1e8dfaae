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


class Trace:
    """What :meth:`rims_rl.RIM.trace` yields: :attr:`layers` and, of the last layer, the three fields of Record.

    Calls are joined along time, so all calls inside one trace need the same batch and the same number of elements.
    """

    def __init__(self, num_layers: int, batch_first: bool = False) -> None:
        self._records: list[list[Record]] = [[] for _ in range(num_layers)]
        self._batch_first = batch_first

    def add(self, layer: int, records: list[Record]) -> None:
        self._records[layer] += records

    @property
    def layers(self) -> list[Record]:
        """One record per layer, from the one that reads the input to the last."""
        if not self._records[0]:
            raise RuntimeError("the trace is empty: call the RIM inside `with rim.trace() as trace:`")
        joined = [Record(*map(torch.cat, zip(*records, strict=True))) for records in self._records]
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
