"""One job: a training of a supervised task with one seed, and its tests."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save_file

from rims_rl.common.files import replacing
from rims_rl.common.freed_memory import keep_freed_memory
from rims_rl.jobs.job import Job, Progress
from rims_rl.runs.records import SupervisedResult, read_checked
from rims_rl.supervised.task import Task, TaskConfig
from rims_rl.supervised.task_names import find_task
from rims_rl.supervised.training import CHECKPOINT, ITERATIONS, Training, Watcher

MEASURED_SECONDS = 2.0  # of training, at least, after one iteration to warm up


@dataclass(frozen=True)
class SupervisedJob(Job):
    """Trains one network on one task, and tests it."""

    kind: ClassVar[str] = "supervised"
    unit: ClassVar[str] = "iterations"
    task: type[Task]
    config: TaskConfig
    seed: int
    workers: int | None = None  # processes that make data; None: as many as the task says
    data_dir: Path | None = None  # of files that the task downloads; None: in the user's cache
    watcher: Watcher = field(default_factory=Watcher, compare=False)  # follows the training, in this process
    label: str | None = None  # the beginning of its title; None: the core's name
    definition: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        definition = {"task": self.task.name, "seed": self.seed, "config": self.config.definition()}
        object.__setattr__(self, "definition", definition)  # the usual way round a frozen dataclass

    @property
    def title(self) -> str:
        return f"{self.label or self.config.core.rpartition('.')[2]}_{self.seed}"

    @property
    def core_name(self) -> str:
        """What a suite calls its core."""
        return (self.label or self.config.core).removeprefix(f"{self.task.name}_")

    @property
    def steps(self) -> int:
        return self.config.iterations

    @property
    def speed_group(self) -> tuple[Hashable, ...]:
        return self.task.name, self.config.model_dump_json()

    def measure_speed(self, threads: int) -> float:
        torch.set_num_threads(threads)
        keep_freed_memory()
        training = Training(self.task(self.config, self.data_dir), self.seed)
        batches = iter(training.batches(self._workers))
        training.iterate(next(batches))
        begun, first = time.perf_counter(), training.done
        for batch in batches:
            training.iterate(batch)
            if time.perf_counter() - begun > MEASURED_SECONDS:
                break
        return max(1, training.done - first) / (time.perf_counter() - begun)

    def progress(self, folder: Path) -> TrainingProgress:
        return TrainingProgress(folder, self.steps)

    def to_json(self) -> dict[str, Any]:
        data_dir = None if self.data_dir is None else str(self.data_dir.absolute())
        return {**self.definition, "workers": self.workers, "data_dir": data_dir, "label": self.label}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SupervisedJob:
        task = find_task(data["task"])
        config = task.config_class.model_validate(data["config"])
        data_dir = None if data["data_dir"] is None else Path(data["data_dir"])
        return cls(task, config, data["seed"], data["workers"], data_dir, label=data["label"])

    @property
    def _workers(self) -> int:
        return self.task.workers if self.workers is None else self.workers

    def train_and_evaluate(self, folder: Path, threads: int) -> dict[str, Any]:
        torch.set_num_threads(threads)
        keep_freed_memory()
        training = Training(self.task(self.config, self.data_dir), self.seed, folder)
        training.run(self._workers, self.watcher)
        with replacing(folder / "network.safetensors") as temporary:
            save_file({name: t.contiguous() for name, t in training.network.state_dict().items()}, temporary)
        return {"hash": self.hash, "definition": self.definition, **training.result()}

    def clean_up(self, folder: Path) -> None:
        for name in (CHECKPOINT, ITERATIONS):
            (folder / name).unlink(missing_ok=True)


class TrainingProgress(Progress):
    def __init__(self, folder: Path, iterations: int) -> None:
        self._file, self._iterations = folder / ITERATIONS, iterations

    def steps(self) -> int:
        try:
            return int(self._file.read_text())
        except (OSError, ValueError):  # not there yet, or being written
            return 0

    def trained(self) -> bool:
        return self.steps() >= self._iterations


def read_result(path: Path) -> dict[str, Any]:
    return read_checked(path, SupervisedResult, "take it from git, or remove it to train again")
