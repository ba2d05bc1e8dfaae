"""What a job is: one training that is run once, and leaves one small result file."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock, Timeout

from rims_rl.common.files import clear_leftovers, write_json


class Stopped(Exception):
    """A signal asked a job to stop, and it has saved what is needed to go on; the text says how far it came."""

    def __init__(self, text: str, signal: int) -> None:
        super().__init__(text)
        self.signal = signal


class Progress(ABC):
    """How far the training of a job is, read from its folder by another process."""

    @abstractmethod
    def steps(self) -> int:
        """As far as is known: a little less than have been done."""

    @abstractmethod
    def trained(self) -> bool:
        """Whether training is over, so that only the evaluation is left."""


class Job(ABC):
    """One training with one seed, and its evaluation. Subclasses say what is trained."""

    kind: ClassVar[str]  # what job.json calls it
    unit: ClassVar[str] = "steps"  # what its length is counted in
    definition: dict[str, Any]  # all that changes the outcome, as plain data

    @property
    @abstractmethod
    def title(self) -> str:
        """The beginning of its name, in which somebody finds it: what is trained, and the seed."""

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.definition, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Of its folder and of its result."""
        return f"{self.title}_{self.hash}"

    @property
    @abstractmethod
    def steps(self) -> int:
        """Of its training, at most."""

    @property
    def sources(self) -> list[str]:
        """Hashes of the jobs that have to be finished before."""
        return []

    @property
    @abstractmethod
    def speed_group(self) -> tuple[Hashable, ...]:
        """Equal for jobs that are as fast as each other, so that one of them is measured for all."""

    @abstractmethod
    def measure_speed(self, threads: int) -> float:
        """Steps per second, from training for a moment."""

    @abstractmethod
    def progress(self, folder: Path) -> Progress:
        """How far it is, if ``folder`` is its own."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What another process needs to run it: the arguments of ``from_json``."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any]) -> Job: ...

    def run(self, folder: Path, results: Path, threads: int) -> None:
        """Do what is left of it, and write its result. Waits for another process that is at it."""
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if self.hash not in finished(results):
                clear_leftovers(results)
                write_json(results / f"{self.name}.json", self.train_and_evaluate(folder, threads))
                self.clean_up(folder)

    @abstractmethod
    def train_and_evaluate(self, folder: Path, threads: int) -> dict[str, Any]:
        """From the beginning, or from the last checkpoint in ``folder``. Returns what is worth keeping."""

    def clean_up(self, folder: Path) -> None:  # noqa: B027
        """Remove what is of no use any more when the result is written."""


def is_held(folder: Path) -> bool:
    """Whether a process is at the job with this folder; the lock of one that was killed opens by itself."""
    if not (lock := folder / ".lock").exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True


def finished(results: Path) -> dict[str, Path]:
    """The result files, by the hash at the end of their names."""
    return {path.stem.rpartition("_")[2]: path for path in sorted(results.glob("*_*.json"))}
