"""The jobs of a suite as processes of this machine, a few at a time."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rims_rl.errors import UserError
from rims_rl.results import write_json
from rims_rl.suite.plan import Job, Plan
from rims_rl.suite.results import Meter, finished, job_folder, last_lines

ATTEMPTS = 3  # of one job
# Not `python -m`: that would look for rims_rl in the current folder first.
COMMAND = "import sys; sys.path = [path for path in sys.path if path]; from rims_rl.cli import main; main()"


def run_suite(plan: Plan, results: Path, logdir: Path, jobs: int | None, threads: int) -> None:
    """Run what is not finished. Ctrl-C or SIGTERM lets running jobs save; the same command goes on later."""
    cores = os.cpu_count() or 1
    if (jobs or 1) * threads > cores:
        raise UserError(
            f"{jobs or 1} jobs of {threads} threads are more than the {cores} cores of this machine; "
            f"give --jobs {max(1, cores // threads)}, or fewer --threads"
        )
    engine = _Engine(plan, results, logdir, jobs or cores // threads, threads)
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
        raise SystemExit(1)


class _Engine:
    def __init__(self, plan: Plan, results: Path, logdir: Path, jobs: int, threads: int) -> None:
        self._plan, self._results, self._logdir, self._jobs, self._threads = plan, results, logdir, jobs, threads
        done = finished(results)
        self._waiting = deque(job for job in plan.jobs if job.hash not in done)
        self._finished = len(plan.jobs) - len(self._waiting)
        self._running: list[_Running] = []
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
                    display.update(self._running, self._finished)
                    time.sleep(0.2)
        finally:
            for running in self._running:  # something went wrong here: let them save
                running.process.terminate()
                running.process.wait()

    def on_signal(self, number: int, frame: Any) -> None:
        self._signals.append(number)

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._jobs and not self._signals:
            job = self._waiting.popleft()
            self._attempts[job.hash] += 1
            folder = job_folder(self._plan, job, self._logdir)
            self._running.append(_Running(job, folder, self._results, self._threads))

    def _stop(self, at_once: bool) -> None:
        for running in self._running:
            running.process.kill() if at_once else running.process.terminate()
        if self._running and not at_once:
            self.console.print(f"waiting for {len(self._running)} jobs to save; once more to stop at once")

    def _collect(self) -> None:
        for running in [running for running in self._running if running.process.poll() is not None]:
            self._running.remove(running)
            running.input.close()
            job, code = running.job, running.process.returncode
            if code == 0:
                self._finished += 1
                self.console.print(f"{job.name}: finished, {self._finished} of {len(self._plan.jobs)}")
            elif self._signals:
                continue
            elif code == 2 or self._attempts[job.hash] == ATTEMPTS:  # 2: a sentence that will be true next time too
                self.failed += 1
                log = running.folder / "log.txt"
                self.console.print(f"{job.name}: failed; the end of {log}:\n{last_lines(log)}")
            else:
                self._waiting.append(job)
                how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
                self.console.print(f"{job.name}: {how}; it will be tried again")


class _Running:
    """A job and its process."""

    def __init__(self, job: Job, folder: Path, results: Path, threads: int) -> None:
        self.job, self.folder, self.meter = job, folder, Meter(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "job.json", job._asdict())
        arguments = ["suite", "job", str(folder), "--results", str(results), "--threads", str(threads)]
        with (folder / "log.txt").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                stdin=subprocess.PIPE,  # closes with this process, however it ends: then the job saves and stops
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                start_new_session=True,  # Ctrl-C goes to the suite alone, which tells its jobs
            )
        assert self.process.stdin is not None
        self.input = self.process.stdin


class _Display:
    """A line for all jobs together, and one for each that is running."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._steps, self._total = plan.suite.steps, len(plan.jobs)
        columns = [
            TextColumn("{task.description}"),
            BarColumn(16),
            TextColumn("{task.completed:,.0f} / {task.total:,.0f} steps  {task.fields[rate]}"),
            TimeRemainingColumn(),
        ]
        self._progress = Progress(*columns, console=console, speed_estimate_period=600)
        self._all = self._progress.add_task("", total=self._steps * self._total, rate="")
        self._lines: dict[int, tuple[TaskID, int, float]] = {}  # process -> line, its first steps, and when that was

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def update(self, running: list[_Running], finished_jobs: int) -> None:
        steps = {each.process.pid: min(each.meter.steps(), self._steps) for each in running}
        done = finished_jobs * self._steps + sum(steps.values())
        self._progress.update(self._all, completed=done, description=f"{finished_jobs} of {self._total} jobs")
        for each in running:
            pid = each.process.pid
            if pid not in self._lines:
                name = each.job.name.rpartition("_")[0]
                self._lines[pid] = self._progress.add_task(name, total=self._steps, rate=""), steps[pid], time.time()
            line, first, begun = self._lines[pid]
            rate = f"{(steps[pid] - first) / (time.time() - begun + 1e-9):,.0f}/s"
            if each.meter.trained():
                rate = "evaluating"
            self._progress.update(line, completed=steps[pid], rate=rate)
        for pid in set(self._lines) - set(steps):
            self._progress.remove_task(self._lines.pop(pid)[0])
