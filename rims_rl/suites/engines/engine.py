"""Runs the jobs of a suite, wherever: what comes first, what died and is tried again, what to say, and when to stop."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rims_rl.common.files import write_json
from rims_rl.suites.carry_check import check_transfers
from rims_rl.suites.plan import Job, Plan
from rims_rl.suites.storage import Meter, finished, job_folder, last_lines, source_run

ATTEMPTS = 3  # of one job
FAILED = 1  # exit code when jobs have


class Running(ABC):
    """A job that has been started; an engine says how."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.meter = job, folder, Meter(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "job.json", job._asdict())

    @abstractmethod
    def exit_code(self) -> int | None:
        """None while it runs; 0: it is finished; 2: it has said what is wrong; below 0: it was ended by a signal."""

    @abstractmethod
    def stop(self, at_once: bool) -> None:
        """Let it save and end, or end it at once."""


Start = Callable[[Job, Path], Running]


def run_jobs(plan: Plan, results: Path, logdir: Path, start: Start, room: Callable[[], int]) -> None:
    """Run what is not finished, as many side by side as there is ``room`` for. Ctrl-C or SIGTERM lets running jobs
    save; the same command goes on later."""
    check_transfers(plan)
    engine = _Engine(plan, results, logdir, start, room)
    before = {number: signal.signal(number, engine.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        engine.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    go_on = shlex.join(["rims-rl", *sys.argv[1:]])
    if engine.stopped_by:
        engine.console.print(f"stopped; to go on: {go_on}")
        raise SystemExit(128 + engine.stopped_by)
    if engine.failed:
        engine.console.print(f"{engine.failed} of {len(plan.jobs)} jobs failed; when that is mended: {go_on}")
        raise SystemExit(FAILED)


class _Engine:
    def __init__(self, plan: Plan, results: Path, logdir: Path, start: Start, room: Callable[[], int]) -> None:
        self._plan, self._logdir, self._start_job, self._room = plan, logdir, start, room
        done = finished(results)
        self._waiting = deque(job for job in plan.jobs if job.hash not in done)
        for job in self._waiting:
            for source in job.sources:
                if source in done:
                    source_run(source, job_folder(plan, job, logdir).parent)  # says if it is not there
        self._finished = len(plan.jobs) - len(self._waiting)
        self._running: list[Running] = []
        self._attempts: Counter[str] = Counter()
        self._signals: list[int] = []
        self.failed = 0
        self.console = Console(highlight=False, markup=False, soft_wrap=True)

    @property
    def stopped_by(self) -> int | None:
        return self._signals[0] if self._signals else None

    def run(self) -> None:
        total, waiting = len(self._plan.jobs), len(self._waiting)
        self.console.print(f"{self._plan.name}: {self._finished} of {total} jobs are finished, {waiting} to do")
        told = 0
        try:
            with _Display(self.console, self._plan) as display:
                while self._running or (self._waiting and not self._signals):
                    self._start()
                    if told < len(self._signals):
                        self._stop(at_once=told > 0)
                        told += 1
                    self._collect()
                    display.update(self._running, {job.hash for job in self._waiting}, self._finished)
                    time.sleep(0.2)
        finally:
            for running in self._running:  # something went wrong here: let them save
                running.stop(at_once=False)
            while any(running.exit_code() is None for running in self._running):
                time.sleep(0.2)

    def on_signal(self, number: int, frame: Any) -> None:
        self._signals.append(number)

    def _start(self) -> None:
        while not self._signals and (job := self._next()) and len(self._running) < self._room():
            self._waiting.remove(job)
            self._attempts[job.hash] += 1
            self._running.append(self._start_job(job, job_folder(self._plan, job, self._logdir)))

    def _next(self) -> Job | None:
        """The first that waits for nobody."""
        unfinished = {job.hash for job in self._waiting} | {running.job.hash for running in self._running}
        return next((job for job in self._waiting if unfinished.isdisjoint(job.sources)), None)

    def _stop(self, at_once: bool) -> None:
        for running in self._running:
            running.stop(at_once)
        if self._running and not at_once:
            self.console.print(f"waiting for {len(self._running)} jobs to save; once more to stop at once")

    def _collect(self) -> None:
        codes = [(running, running.exit_code()) for running in self._running]
        for running, code in codes:
            if code is None:
                continue
            self._running.remove(running)
            job = running.job
            if code == 0:
                self._finished += 1
                self.console.print(f"{job.name}: finished, {self._finished} of {len(self._plan.jobs)}")
            elif self._signals:
                continue
            elif code == 2 or self._attempts[job.hash] == ATTEMPTS:  # 2: a sentence that will be true next time too
                log = running.folder / "log.txt"
                self.console.print(f"{job.name}: failed; the end of {log}:\n{last_lines(log)}")
                self._give_up(job)
            else:
                self._waiting.append(job)
                how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
                self.console.print(f"{job.name}: {how}; it will be tried again")

    def _give_up(self, job: Job) -> None:
        """A job, and those that would start from it."""
        self.failed += 1
        for other in [other for other in self._waiting if job.hash in other.sources]:
            self._waiting.remove(other)
            self.failed += 1
            self.console.print(f"{other.name}: failed, because it starts from {job.name}")


class _Display:
    """A line for all jobs together, and one for each that is running."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._jobs = plan.jobs
        columns = [
            TextColumn("{task.description}"),
            BarColumn(16),
            TextColumn("{task.completed:,.0f} / {task.total:,.0f} steps  {task.fields[rate]}"),
            TimeRemainingColumn(),
        ]
        self._progress = Progress(*columns, console=console, speed_estimate_period=600)
        self._all = self._progress.add_task("", total=sum(job.steps for job in self._jobs), rate="")
        self._lines: dict[str, tuple[TaskID, int, float]] = {}  # job -> line, its first steps, and when that was

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def update(self, running: list[Running], waiting: set[str], finished: int) -> None:
        steps = {each.job.hash: min(each.meter.steps(), each.job.steps) for each in running}
        done = sum(steps.get(job.hash, job.steps) for job in self._jobs if job.hash not in waiting)
        self._progress.update(self._all, completed=done, description=f"{finished} of {len(self._jobs)} jobs")
        for each in running:
            key = each.job.hash
            if key not in self._lines:
                name = each.job.name.rpartition("_")[0]
                self._lines[key] = self._progress.add_task(name, total=each.job.steps, rate=""), steps[key], time.time()
            line, first, begun = self._lines[key]
            rate = f"{(steps[key] - first) / (time.time() - begun + 1e-9):,.0f}/s"
            if each.meter.trained():
                rate = "evaluating"
            self._progress.update(line, completed=steps[key], rate=rate)
        for key in set(self._lines) - set(steps):
            self._progress.remove_task(self._lines.pop(key)[0])
