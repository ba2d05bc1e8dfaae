"""RIMs that are taken out, or made to be active, while a policy plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rims_rl.common.errors import UserError
from rims_rl.core import RIM


@contextmanager
def intervene(policy: Any, run: Path, drop: Sequence[int], force: Sequence[int]) -> Iterator[None]:
    """Take RIMs out of the actor's core, or force them to be active, in all that is played inside."""
    with ExitStack() as stack:
        if drop or force:
            check_rims(policy, run, "`drop` and `force` act on")
            try:
                stack.enter_context(policy.core.drop(*drop))
                stack.enter_context(policy.core.force(*force))
            except ValueError as error:
                raise UserError(f"`drop` and `force`: {error}") from error
        yield


def check_rims(policy: Any, run: Path, what: str) -> None:
    """A UserError that begins with ``what`` unless the policy's core is made of RIMs."""
    if not isinstance(policy.core, RIM):
        raise UserError(f"{what} RIMs, and {run} has the core {policy.core_name!r}; give a run with rims")
