"""Weights that do not change for a while: what an engine makes of them, as a packed copy, then serves many steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

_changing = threading.Lock()  # of how many scopes are open
_last_step = object()  # another one after each step of any optimizer


class AtRest:
    """Of one layer, which holds it: whether its weights are at rest, and what was made of them."""

    def __init__(self) -> None:
        self._scopes = 0  # of weights_at_rest that are open
        self._made: tuple[Any, ...] | None = None  # what it was made of, these weights, and what was made

    def __bool__(self) -> bool:
        return self._scopes > 0

    def __reduce__(self) -> tuple[Any, ...]:
        return AtRest, ()  # a copy of the layer has weights of its own

    def begin(self) -> None:
        with _changing:
            self._scopes += 1

    def end(self) -> None:
        with _changing:
            self._scopes -= 1
            if not self._scopes:
                self._made = None

    def made_of(self, weights: Sequence[Tensor], make: Callable[[], Any]) -> Any:
        """What ``make`` made of the weights as they are now; None if they are not at rest."""
        if not self:
            return None
        try:  # Asked before the numbers are read: who changes them meanwhile is noticed at the next call.
            of = _last_step, [(id(weight), weight._version, weight.data_ptr()) for weight in weights]
        except RuntimeError:  # made in inference mode, where nobody counts changes
            return None
        made = self._made
        if made is None or made[0] != of:
            # While we hold these, no other tensor gets their identity or their memory.
            held = [(weight, weight.detach()) for weight in weights]
            made = self._made = (of, held, make())
        return made[-1]


def _after_step(*_: Any) -> None:
    global _last_step
    _last_step = object()


# A fused optimizer changes weights without autograd's knowing.
register_optimizer_step_post_hook(_after_step)
