"""What came out of the jobs of a suite that are finished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rims_rl.common.errors import UserError
from rims_rl.jobs.job import finished
from rims_rl.runs.records import JobResult, read_checked
from rims_rl.suites.job import AgentJob
from rims_rl.suites.plan import Plan

Results = Sequence[tuple[AgentJob, dict[str, Any]]]  # jobs, and what is in their files


def read_results(plan: Plan, results: Path) -> list[tuple[AgentJob, dict[str, Any]]]:
    """The jobs that are finished, in the order of the plan, and what came out."""
    paths = finished(results)
    return [(job, _read(job, paths[job.hash])) for job in plan.jobs if job.hash in paths]


def _read(job: AgentJob, path: Path) -> dict[str, Any]:
    remedy = "take it from git, or remove it to run the job again"
    data = read_checked(path, JobResult, remedy)
    played = data["evaluation"].get("variants")
    wanted = job.definition["evaluation"]["variants"]
    if data["definition"] != job.definition or (None if played is None else sorted(played)) != (
        None if wanted is None else sorted(wanted)
    ):
        raise UserError(f"{path} is damaged (it is not a result of {job.name}); {remedy}")
    return data
