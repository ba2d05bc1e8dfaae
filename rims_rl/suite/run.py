"""``rims-rl suite run``: where the jobs of a suite are run, or what they would take."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rims_rl.suite.estimate import print_estimate
from rims_rl.suite.local import run_suite
from rims_rl.suite.plan import Plan


class How(NamedTuple):
    """What the command line says about running, besides what to run."""

    jobs: int | None = None  # side by side; None: as many as there is room for
    threads: int = 1  # of each job
    dry_run: bool = False


def run(plan: Plan, results: Path, logdir: Path, how: How) -> None:
    if how.dry_run:
        print_estimate(plan, results, how.jobs, how.threads)
    else:
        run_suite(plan, results, logdir, how.jobs, how.threads)
