"""One training with one seed, from its beginning or from its checkpoint."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rims_rl.common.errors import UserError
from rims_rl.common.files import read_tensors, write_tensors
from rims_rl.common.signals import stop_at_signal
from rims_rl.core import RIM
from rims_rl.core.rims.life import measures, usage
from rims_rl.jobs.job import Stopped
from rims_rl.runs.provenance import provenance
from rims_rl.supervised.task import Task

WINDOW = 100  # iterations whose mean is one point of the curve
SAVE_EVERY = 60.0  # seconds
COUNT_EVERY = 1.0  # seconds between numbers in the file ITERATIONS
CHECKPOINT, ITERATIONS = "checkpoint.pt", "iterations.txt"  # in the folder of a training that is not finished
TESTED_ON_THE_WAY = 128  # sequences of each test
DIVERGED = 10  # a point of the curve above so many times the first one ends training


class Watcher:
    """Follows a training. This one keeps quiet; the command line has one that prints."""

    def on_begin(self, training: Training) -> None:
        """Before the first iteration, or the first one after a resume."""

    def on_iteration(self, training: Training) -> None:
        """After each."""

    def on_stop(self) -> None:
        """Ctrl-C or SIGTERM: it will stop after this iteration."""

    def on_end(self) -> None:
        """However it ends."""


def diverged(curve: Sequence[Sequence[Any]]) -> bool:
    """Whether a point is not finite, which is null in a file, or far above the first."""
    return any(loss is None or not math.isfinite(loss) or loss > DIVERGED * curve[0][1] for _, loss in curve)


class _Batches(Dataset[tuple[Tensor, ...]]):
    """What :class:`Task` makes, by number: the same in whatever process, and after a resume."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._seed = task, seed

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self._task.batch(self._seed, index)


class Training:
    """What a training knows, between its iterations too."""

    def __init__(self, task: Task, seed: int, folder: Path | None = None) -> None:
        """``folder`` has the checkpoint; with None, there is none."""
        torch.manual_seed(seed)
        self.task, self.seed, self.folder = task, seed, folder
        self.network = task.network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=task.config.learning_rate)
        self.schedule = task.schedule(self.optimizer)
        self.done = 0  # iterations
        self.losses: list[float] = []  # since the last point of the curve
        self.curve: list[tuple[int, float]] = []
        self.on_the_way: list[dict[str, Any]] = []
        self.resumed_from: list[int] = []
        self.seconds = 0.0
        if folder is not None and (folder / CHECKPOINT).exists():
            self._restore(folder / CHECKPOINT)
        task.begin(folder, self.done)

    def batches(self, workers: int) -> Iterable[tuple[Tensor, ...]]:
        """Those that are left, made by ``workers`` processes, or by this one if there are none."""
        left: Any = range(self.done, self.task.config.iterations)
        return DataLoader(
            _Batches(self.task, self.seed),
            batch_size=None,
            sampler=left,
            num_workers=workers,
            generator=torch.Generator(),  # or every resume would draw a number from training's own
        )

    def run(self, workers: int, watcher: Watcher) -> None:
        """To the end, with a checkpoint now and then, and one when Ctrl-C or SIGTERM asks to stop.

        Raises:
            Stopped: it was asked to.
        """
        begun, saved, counted = time.monotonic() - self.seconds, time.monotonic(), -math.inf
        own, stopped = os.getpid(), list[int]()

        def stop(number: int) -> None:
            stopped.append(number)
            if os.getpid() == own:  # processes that make data inherit this, and have nothing to say
                watcher.on_stop()

        watcher.on_begin(self)
        try:
            with stop_at_signal(stop):
                for batch in self.batches(workers) if not self.is_over else ():
                    self.iterate(batch)
                    now = time.monotonic()
                    self.seconds = now - begun
                    watcher.on_iteration(self)
                    if stopped or now - counted > COUNT_EVERY:
                        self._write_count()
                        counted = now
                    if stopped or now - saved > SAVE_EVERY:
                        self.save()
                        saved = time.monotonic()
                    if stopped:
                        text = f"stopped after {self.done:,} iterations; the same command goes on from there"
                        raise Stopped(text, stopped[0])
                    if self.is_over:
                        break
        finally:
            watcher.on_end()

    @property
    def is_over(self) -> bool:
        return self.stopped != "budget"

    @property
    def stopped(self) -> str:
        """Why training ends, before all iterations are done or with them."""
        if diverged(self.curve):
            return "diverged"
        return "learned" if self.curve and self.curve[-1][1] < self.task.config.stop_below else "budget"

    def iterate(self, batch: tuple[Tensor, ...]) -> None:
        """Once: the gradient of a batch, a step of the optimizer, and tests when it is time for them."""
        config = self.task.config
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
        self.task.after_iteration(self.network, self.seed, self.done)

    @torch.no_grad()
    def _test(self, sequences: int) -> dict[str, dict[str, float]]:
        self.network.eval()
        return self.task.tests(self.network, sequences)

    def _write_count(self) -> None:
        """For other processes, see :class:`rims_rl.supervised.job.TrainingProgress`."""
        if self.folder is not None:
            (self.folder / ITERATIONS).write_text(str(self.done))

    def save(self) -> None:
        if self.folder is None:
            return
        kept = {name: getattr(self, name) for name in _KEPT}
        write_tensors(
            self.folder / CHECKPOINT,
            {
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule and self.schedule.state_dict(),
                "random": torch.get_rng_state(),
                **kept,
            },
        )

    def _restore(self, checkpoint: Path) -> None:
        try:
            state = read_tensors(checkpoint)
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
            raise UserError(f"{checkpoint} is damaged ({reason}); remove it to train again") from error
        self.resumed_from.append(self.done)

    def result(self) -> dict[str, Any]:
        """What is worth keeping of a finished training, without paths of this machine."""
        started = time.time()
        tests = self._test(self.task.config.test_sequences)
        with torch.no_grad():  # there is nothing to see in a network that has diverged
            record = {} if self.stopped == "diverged" else self.task.record(self.network)
        core: Any = self.network.core
        return {
            "iterations": self.done,
            "stopped": self.stopped,
            "last_learning_rate": self.optimizer.param_groups[0]["lr"],
            "tests": _finite(tests),
            "curve": _finite(self.curve),
            "on_the_way": _finite(self.on_the_way),
            "record": record,
            "life": None if self.stopped == "diverged" else self._life(),
            "parameters": {"core": _count(core), "all": _count(self.network)},
            "resumed_from": self.resumed_from,
            **provenance(),
            "threads": torch.get_num_threads(),
            "seconds": {"training": round(self.seconds, 1), "tests": round(time.time() - started, 1)},
        }

    def _life(self) -> dict[str, Any] | None:
        """How alive the RIMs are on a batch that comes after the last."""
        core: Any = self.network.core
        if not isinstance(core, RIM):
            return None
        with torch.no_grad(), core.trace() as trace:
            self.task.loss(self.network, *self.task.batch(self.seed, self.done))
        return {"usage": usage(trace.active).tolist(), **measures(*trace.layers[-1])}


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
