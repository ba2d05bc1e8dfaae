"""Several jobs, and where they keep things: small result files, which are worth committing, and folders.

::

    <results>/<job>.json      what came out; a job whose hash is here is finished
    <folder>/<job>/           job.json and log.txt, if it ran in a process of its own; and what it trains

The names hold the hash of the job, so that they alone say what belongs to it, whatever was killed when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rims_rl.jobs.job import Job, finished


@dataclass(frozen=True)
class Experiment:
    """Jobs that are run together."""

    name: str
    title: str
    jobs: Sequence[Job]
    results: Path
    folder: Path

    @property
    def unit(self) -> str:
        """What the length of its jobs is counted in."""
        return " or ".join(dict.fromkeys(job.unit for job in self.jobs))

    def finished(self) -> dict[str, Path]:
        """The result files by hash: among them those of its jobs that are finished."""
        return finished(self.results)

    def folder_of(self, job: Job) -> Path:
        return self.folder / job.name


def last_lines(log: Path, count: int = 8) -> str:
    """The end of what a job has said."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else ""
