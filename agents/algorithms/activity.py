"""Who was active in a rollout: recorded there, and compared with, or replayed in, the update.

With new weights other RIMs may win the competition for the same input. Then the update is about other computations than
those that acted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from rims_rl.core import RIM, Core
from rims_rl.core.rims.trace import Trace


class Activity:
    """Of all layers of those of ``cores`` in which RIMs compete, side by side."""

    def __init__(self, cores: Sequence[Core | None]) -> None:
        self._cores = [core for core in cores if isinstance(core, RIM) and any(cell.competes for cell in core.cells)]

    def __bool__(self) -> bool:
        return bool(self._cores)

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Look at the cores inside."""
        with ExitStack() as stack:
            yield Watched([stack.enter_context(core.trace(only_active=True)) for core in self._cores])

    @contextmanager
    def replayed(self, active: Tensor) -> Iterator[None]:
        """Inside, those are active who are so in ``active``, `(T, B, RIMs)`, as :class:`Watched` has it."""
        with ExitStack() as stack:
            for core in self._cores:
                layers, rims = core.num_layers, core.cells[0].num_rims
                of_core, active = active.split([layers * rims, active.shape[-1] - layers * rims], -1)
                stack.enter_context(core.replay(of_core.unflatten(-1, (layers, rims)).permute(2, 0, 1, 3)))
            yield


class Watched:
    """What is seen of cores. Somebody else may call them in between, so that whoever wants to know what happens in a
    call forgets everything else before."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces

    def forget(self) -> None:
        for trace in self._traces:
            trace.clear()

    def active(self) -> Tensor | None:
        """Who was active since then, `(T, B, RIMs)` bool; None if nobody competes."""
        seen = [layer.active for trace in self._traces for layer in trace.layers]
        return torch.cat(seen, -1) if len(seen) > 1 else seen[0] if seen else None


def flips(then: Tensor, now: Tensor) -> float:
    """At what share of steps other RIMs are active than before."""
    return (then != now).any(-1).float().mean().item()
