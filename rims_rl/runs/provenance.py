"""What every result file says: when, with which code and libraries, and on which machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rims_rl import __version__


def provenance(started: float | None = None) -> dict[str, Any]:
    """What every result file carries: when, with which code and libraries, on which machine, in how many seconds."""
    import numpy
    import torch

    from rims_rl.core.rims.engines import c_struct

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": None if started is None else round(time.time() - started, 1),
        "rims_rl": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "loops": c_struct.loops_here(),  # of RIMs
        "python": platform.python_version(),
        "machine": {"cpu": _cpu_name(), "cores": os.cpu_count(), "system": platform.system()},
    }


def _commit() -> str | None:
    """The commit of the checkout this package runs from, with ``+`` if files differ from it; None if installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    git = ["git", "-C", str(root)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        return None
    dirty = subprocess.run([*git, "status", "--porcelain", "--", "*.py", "*.c"], capture_output=True, text=True)
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
