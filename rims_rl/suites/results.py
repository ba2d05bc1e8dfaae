"""What came out of the jobs of a suite that are finished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rims_rl.common.errors import UserError
from rims_rl.jobs.job import finished
from rims_rl.runs.records import JobResult, SupervisedResult, read_checked
from rims_rl.suites.job import AgentJob
from rims_rl.suites.plan import Plan
from rims_rl.supervised.job import SupervisedJob

Results = Sequence[tuple[AgentJob, dict[str, Any]]]  # jobs, and what is in their files
SupervisedResults = Sequence[tuple[SupervisedJob, dict[str, Any]]]
REMEDY = "take it from git, or remove it to run the job again"


def read_results(plan: Plan, results: Path) -> list[tuple[AgentJob, dict[str, Any]]]:
    """The jobs that are finished, in the order of the plan, and what came out."""
    paths = finished(results)
    return [(job, _read(job, paths[job.hash])) for job in plan.jobs if job.hash in paths]


def read_supervised(plan: Plan, results: Path) -> list[tuple[SupervisedJob, dict[str, Any]]]:
    """The same, of supervised tasks."""
    paths = finished(results)
    found = [(job, paths[job.hash]) for job in plan.supervised if job.hash in paths]
    return [(job, read_checked(path, SupervisedResult, REMEDY)) for job, path in found]


def _read(job: AgentJob, path: Path) -> dict[str, Any]:
    data = read_checked(path, JobResult, REMEDY)
    played = data["evaluation"].get("variants")
    wanted = job.definition["evaluation"]["variants"]
    if data["definition"] != job.definition or (None if played is None else sorted(played)) != (
        None if wanted is None else sorted(wanted)
    ):
        raise UserError(f"{path} is damaged (it is not a result of {job.name}); {REMEDY}")
    return data
