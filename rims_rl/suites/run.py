"""Runs a suite, or says how long it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rims_rl.jobs.engines.engine import Listener, Outcome
from rims_rl.jobs.estimate import Estimate, estimate
from rims_rl.jobs.job import Job
from rims_rl.jobs.options import RunOptions
from rims_rl.jobs.run import run_jobs
from rims_rl.suites.carry_check import check_transfers
from rims_rl.suites.plan import Plan
from rims_rl.suites.run_files import source_run


def run_suite(
    plan: Plan, results: Path, logdir: Path, options: RunOptions, listener: Listener | None = None
) -> Outcome:
    """Run the jobs that are not finished, if all that is to be carried over is there and fits."""
    check_transfers(plan)
    experiment = plan.experiment(results, logdir)
    done = experiment.finished()
    for source in {source for job in plan.jobs if job.hash not in done for source in job.sources if source in done}:
        source_run(source, experiment.folder)
    return run_jobs(experiment, options, listener)


def estimate_suite(
    plan: Plan, results: Path, options: RunOptions, watch: Callable[[Iterable[Job]], Iterable[Job]] = iter
) -> Estimate:
    """How long the jobs would take that are not finished; ``watch`` is given those that are measured."""
    check_transfers(plan)
    return estimate(plan.experiment(results, Path()), options, watch)
