"""What Ctrl-C and SIGTERM do while something runs that must not be torn apart."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signal_handler(
    handle: Callable[[int, Any], Any], numbers: Sequence[signal.Signals] = STOP_SIGNALS
) -> Iterator[Callable[[], None]]:
    """Let ``handle`` get these signals inside; what is yielded puts the handlers of before back, as the end does.

    Outside the main thread nothing changes: Python gives signals to the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.signal(number, handle) for number in numbers}

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield put_back
    finally:
        put_back()


@contextmanager
def stop_at_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """Call ``stop`` with the number of the first Ctrl-C or SIGTERM inside; a second one acts as it did before."""

    def handle(number: int, _: Any) -> None:
        put_back()
        stop(number)

    with signal_handler(handle) as put_back:
        yield
