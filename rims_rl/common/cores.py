"""How many processors and threads this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those that it is allowed to run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_threads() -> int:
    """One for each of them, and no more than ``OMP_NUM_THREADS`` says."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # it may name a number for each level
    return min(usable_cores(), int(wanted)) if wanted.isdecimal() and int(wanted) else usable_cores()


CORES, THREADS = usable_cores(), usable_threads()
