"""How everything here is timed: all candidates in one process, taking turns, compared by medians."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from rims_rl.common.options import Count, Options


class BenchOptions(Options):
    """How a benchmark measures."""

    threads: Count = 1  # that torch may use
    repeats: Count = 5  # timed, of each measurement
    quick: bool = False  # fewer and smaller cases, to see that it works
    progress: bool = False  # show a bar


def medians(candidates: Mapping[str, Callable[[], object]], repeats: int, calls: int = 1) -> dict[str, float]:
    """Median milliseconds of one call of each candidate. They take turns, so that a slow minute hits them all."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for repeat in range(repeats + 1):
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(calls):
                run()
            if repeat:  # the first round warms up
                times[name].append((time.perf_counter() - start) / calls * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory(run: Callable[[], object]) -> float | None:
    """Most megabytes by which ``run`` made this process grow, median of five; None where the system does not say."""
    try:
        return statistics.median(_growth(run) for _ in range(5))
    except (OSError, AttributeError):
        return None


def _growth(run: Callable[[], object]) -> float:
    """Free memory is first given back to the system, and the peak that the kernel keeps is reset."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    """A size in KiB from what the kernel tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
