"""What an engine is: it runs one layer of RIMs over a sequence, and says what it cannot run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.trace import Records


class Engine(ABC):
    """One way to compute a layer's equations."""

    name: ClassVar[str]

    @abstractmethod
    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        """Why it cannot run ``cell`` over ``x`` (T, B, N, D), as the end of a sentence; None if it can."""

    @abstractmethod
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
        """Run ``cell`` over ``x`` (T, B, N, D) from ``h`` and ``c``, each (B, K * H).

        ``starts`` (T, B) is not zero where the state is the initial one before the step. Returns the outputs
        (T, B, K * H) and the last state. If ``records`` are given, what happened inside is appended to them. If
        ``replayed`` (T, B, K) is given, it says who is active, instead of a competition.
        """
