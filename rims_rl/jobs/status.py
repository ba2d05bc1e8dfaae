"""How far each job of an experiment is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rims_rl.jobs.experiment import Experiment, last_lines
from rims_rl.jobs.job import Job, is_held


class Status(NamedTuple):
    job: Job
    state: str  # finished, running, interrupted or waiting
    steps: int | None = None  # of one that is running or interrupted
    last_said: str = ""


def status(experiment: Experiment) -> list[Status]:
    """Of every job, in the order of the experiment."""
    done = experiment.finished()
    return [
        Status(job, "finished") if job.hash in done else _status(job, experiment.folder_of(job))
        for job in experiment.jobs
    ]


def _status(job: Job, folder: Path) -> Status:
    log, lock = folder / "log.txt", folder / ".lock"
    if not (log.exists() or lock.exists()):
        return Status(job, "waiting")
    steps = job.progress(folder).steps()
    return Status(job, "running", steps) if is_held(folder) else Status(job, "interrupted", steps, last_lines(log, 1))
