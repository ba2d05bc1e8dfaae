"""One training with one seed, from its beginning or from its checkpoint, and the small file that it leaves.

::

    <logdir>/supervised/<task>/<job>/    checkpoint.pt while it trains, then network.safetensors
    <results>/<task>/<job>.json          what came out; a job whose hash is here is finished
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rims_rl.common.errors import UserError
from rims_rl.common.files import read_tensors, replacing, write_json, write_tensors
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import SupervisedResult, read_record
from rims_rl.supervised.task import Task, TaskConfig

WINDOW = 100  # iterations whose mean is one point of the curve
SAVE_EVERY = 60.0  # seconds
TESTED_ON_THE_WAY = 128  # sequences of each test
DIVERGED = 10  # a point of the curve above so many times the first one ends training


class Job(NamedTuple):
    task: type[Task]
    config: TaskConfig
    seed: int

    @property
    def definition(self) -> dict[str, Any]:
        """All that changes the outcome, as plain data."""
        return {"task": self.task.name, "seed": self.seed, "config": self.config.definition()}

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.definition, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Of its folder and of its result."""
        return f"{self.config.core.rpartition('.')[2]}_{self.seed}_{self.hash}"

    def result(self, results: Path) -> Path:
        return results / self.task.name / f"{self.name}.json"


def diverged(curve: Sequence[Sequence[Any]]) -> bool:
    """Whether a point is not finite, which is null in a file, or far above the first."""
    return any(loss is None or not math.isfinite(loss) or loss > DIVERGED * curve[0][1] for _, loss in curve)


def read_result(path: Path) -> dict[str, Any]:
    return read_record(path, SupervisedResult, "take it from git, or remove it to train again")


def run_job(job: Job, logdir: Path, results: Path, data_dir: Path | None, workers: int | None) -> None:
    """Do what is left of a job, and write its result. Waits for another process that is at it."""
    folder, result = logdir / "supervised" / job.task.name / job.name, job.result(results)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if result.exists():
            return
        training = Training(job, folder, job.task(job.config, data_dir))
        training.run(job.task.workers if workers is None else workers)
        with replacing(folder / "network.safetensors") as temporary:
            save_file({name: t.contiguous() for name, t in training.network.state_dict().items()}, temporary)
        write_json(result, training.result())
        training.checkpoint.unlink(missing_ok=True)


class _Batches(Dataset[tuple[Tensor, ...]]):
    """What :class:`Task` makes, by number: the same in whatever process, and after a resume."""

    def __init__(self, job: Job, task: Task) -> None:
        self._task, self._seed = task, job.seed

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self._task.batch(self._seed, index)


class Training:
    """What a training knows, between its iterations too."""

    def __init__(self, job: Job, folder: Path, task: Task) -> None:
        torch.manual_seed(job.seed)
        self.job, self.task, self.checkpoint = job, task, folder / "checkpoint.pt"
        self.network = task.network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=job.config.learning_rate)
        self.schedule = task.schedule(self.optimizer)
        self.done = 0  # iterations
        self.losses: list[float] = []  # since the last point of the curve
        self.curve: list[tuple[int, float]] = []
        self.on_the_way: list[dict[str, Any]] = []
        self.resumed_from: list[int] = []
        self.seconds = 0.0
        if self.checkpoint.exists():
            self._restore()

    def run(self, workers: int) -> None:
        """To the end, with a checkpoint now and then, and one when Ctrl-C or SIGTERM asks to stop."""
        config, console = self.job.config, Console(highlight=False, soft_wrap=True)
        begun, saved = time.monotonic() - self.seconds, time.monotonic()
        left: Any = range(self.done, config.iterations)
        batches = DataLoader(
            _Batches(self.job, self.task),
            batch_size=None,
            sampler=left,
            num_workers=workers,
            generator=torch.Generator(),  # or every resume would draw a number from training's own
        )
        with _progress(console, self) as show, _stop_signals() as stopped:
            for batch in batches if not self.is_over else ():
                self._iterate(batch)
                self.seconds = time.monotonic() - begun
                show()
                if stopped or time.monotonic() - saved > SAVE_EVERY:
                    self.save()
                    saved = time.monotonic()
                if stopped:
                    console.print(f"stopped after {self.done:,} iterations; the same command goes on from there")
                    raise SystemExit(128 + stopped[0])
                if self.is_over:
                    break

    @property
    def is_over(self) -> bool:
        return self.stopped != "budget"

    @property
    def stopped(self) -> str:
        """Why training ends, before all iterations are done or with them."""
        if diverged(self.curve):
            return "diverged"
        return "learned" if self.curve and self.curve[-1][1] < self.job.config.stop_below else "budget"

    def _iterate(self, batch: tuple[Tensor, ...]) -> None:
        config = self.job.config
        self.network.train()
        loss = self.task.loss(self.network, *batch)
        self.optimizer.zero_grad()
        loss.backward()
        if config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), config.max_grad_norm)
        self.optimizer.step()
        self.done += 1
        self.losses.append(loss.item())
        if not math.isfinite(self.losses[-1]):
            self.curve.append((self.done, self.losses[-1]))
        elif self.done % WINDOW == 0:
            self.curve.append((self.done, sum(self.losses) / WINDOW))
            self.losses = []
            if self.schedule:
                self.schedule.step(self.curve[-1][1])
        if self.done % config.test_every == 0:
            sequences = min(TESTED_ON_THE_WAY, config.test_sequences)
            tests = self._test(sequences)
            with torch.no_grad():
                self.on_the_way.append({"iteration": self.done, "tests": tests, **self.task.watch(self.network)})

    @torch.no_grad()
    def _test(self, sequences: int) -> dict[str, dict[str, float]]:
        self.network.eval()
        return self.task.tests(self.network, sequences)

    def save(self) -> None:
        kept = {name: getattr(self, name) for name in _KEPT}
        write_tensors(
            self.checkpoint,
            {
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule and self.schedule.state_dict(),
                "random": torch.get_rng_state(),
                **kept,
            },
        )

    def _restore(self) -> None:
        try:
            state = read_tensors(self.checkpoint)
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.schedule:
                self.schedule.load_state_dict(state["schedule"])
            torch.set_rng_state(state["random"])
            for name in _KEPT:
                setattr(self, name, state[name])
        except UserError:  # it cannot be read
            raise
        except Exception as error:  # there is no end to how reading garbage can fail
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise UserError(f"{self.checkpoint} is damaged ({reason}); remove it to train again") from error
        self.resumed_from.append(self.done)

    def result(self) -> dict[str, Any]:
        """What is worth keeping of a finished training, without paths of this machine."""
        job, started = self.job, time.time()
        tests = self._test(job.config.test_sequences)
        with torch.no_grad():  # there is nothing to see in a network that has diverged
            record = {} if self.stopped == "diverged" else self.task.record(self.network)
        core: Any = self.network.core
        return {
            "hash": job.hash,
            "definition": job.definition,
            "iterations": self.done,
            "stopped": self.stopped,
            "last_learning_rate": self.optimizer.param_groups[0]["lr"],
            "tests": _finite(tests),
            "curve": _finite(self.curve),
            "on_the_way": _finite(self.on_the_way),
            "record": record,
            "parameters": {"core": _count(core), "all": _count(self.network)},
            "resumed_from": self.resumed_from,
            **provenance(),
            "threads": torch.get_num_threads(),
            "seconds": {"training": round(self.seconds, 1), "tests": round(time.time() - started, 1)},
        }


_KEPT = ("done", "losses", "curve", "on_the_way", "resumed_from", "seconds")


def _finite(data: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that Ctrl-C and SIGTERM put themselves in; a second one acts at once."""
    received: list[int] = []
    own = os.getpid()  # processes that make data inherit the handler, and have nothing to say
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        restore()
        if os.getpid() == own:
            print("stopping after this iteration; once more to stop at once", file=sys.stderr)

    def restore() -> None:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield received
    finally:
        restore()


@contextmanager
def _progress(console: Console, training: Training) -> Iterator[Any]:
    """A bar; what it yields draws it anew."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(20),
        TextColumn(
            "{task.completed:,.0f} / {task.total:,.0f}  {task.fields[rate]:.1f}/s  loss {task.fields[loss]:.4f}"
        ),
        TimeRemainingColumn(),
    ]
    first, begun = training.done, time.monotonic()
    with Progress(*columns, console=console) as progress:
        name = f"{training.job.config.core}, seed {training.job.seed}"
        bar = progress.add_task(name, total=training.job.config.iterations, rate=0.0, loss=math.nan)

        def show() -> None:
            rate = (training.done - first) / max(time.monotonic() - begun, 1e-9)
            loss = training.losses[-1] if training.losses else training.curve[-1][1]
            progress.update(bar, completed=training.done, rate=rate, loss=loss)

        yield show
