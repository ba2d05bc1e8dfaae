"""``rims-rl suite status``: how far each job of a suite is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rims_rl.suites.plan import Plan
from rims_rl.suites.storage import Meter, finished, job_folder, last_lines


def print_status(plan: Plan, results: Path, logdir: Path) -> None:
    """A table of jobs: finished, running, interrupted or waiting."""
    done, states = finished(results), Counter[str]()
    table = Table("job", "state", "steps", "last said", title=plan.suite.title)
    for job in plan.jobs:
        folder = job_folder(plan, job, logdir)
        steps = last = ""
        if job.hash in done:
            state = "finished"
        elif not (folder / "log.txt").exists():
            state = "waiting"
        else:
            state, steps = "running" if _running(folder) else "interrupted", f"{Meter(folder).steps():,}"
            last = last_lines(folder / "log.txt", 1) if state == "interrupted" else ""
        states[state] += 1
        table.add_row(Text(job.name), state, steps, Text(last))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{len(plan.jobs)} jobs: " + ", ".join(f"{count} {state}" for state, count in states.items()))


def _running(folder: Path) -> bool:
    """Whether a process is at the job; the lock of one that was killed opens by itself."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True
