"""What the terminal shows of jobs: while they run, how far they are, and how long they would take."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn, track
from rich.table import Table
from rich.text import Text

from rims_rl.common.words import count_of
from rims_rl.jobs.engines.engine import Listener, Outcome, Running
from rims_rl.jobs.estimate import Estimate
from rims_rl.jobs.experiment import Experiment, last_lines
from rims_rl.jobs.job import Job
from rims_rl.jobs.status import status

FAILED = 1  # exit code when jobs have


class Display(Listener):
    """A line for all jobs together, one for each that is running, and one for each thing that happens."""

    def __init__(self, experiment: Experiment) -> None:
        self.console = Console(highlight=False, markup=False, soft_wrap=True)
        self._jobs = experiment.jobs
        columns = [
            TextColumn("{task.description}"),
            BarColumn(16),
            TextColumn(f"{{task.completed:,.0f}} / {{task.total:,.0f}} {experiment.unit}  {{task.fields[rate]}}"),
            TimeRemainingColumn(),
        ]
        self._progress = Progress(*columns, console=self.console, speed_estimate_period=600)
        self._all = self._progress.add_task("", total=sum(job.steps for job in self._jobs), rate="")
        self._lines: dict[str, tuple[TaskID, int, float]] = {}  # job -> line, its first steps, and when that was

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def on_begin(self, experiment: Experiment, finished: int) -> None:
        total = len(self._jobs)
        self.console.print(f"{experiment.name}: {finished} of {total} jobs are finished, {total - finished} to do")

    def on_look(self, running: Sequence[Running], waiting: set[str], finished: int) -> None:
        steps = {each.job.hash: min(each.progress.steps(), each.job.steps) for each in running}
        done = sum(steps.get(job.hash, job.steps) for job in self._jobs if job.hash not in waiting)
        self._progress.update(self._all, completed=done, description=f"{finished} of {len(self._jobs)} jobs")
        for each in running:
            key = each.job.hash
            if key not in self._lines:
                line = self._progress.add_task(each.job.title, total=each.job.steps, rate="")
                self._lines[key] = line, steps[key], time.time()
            line, first, begun = self._lines[key]
            rate = f"{(steps[key] - first) / (time.time() - begun + 1e-9):,.0f}/s"
            if each.progress.trained():
                rate = "evaluating"
            self._progress.update(line, completed=steps[key], rate=rate)
        for key in set(self._lines) - set(steps):
            self._progress.remove_task(self._lines.pop(key)[0])

    def on_stop(self, running: int) -> None:
        self.console.print(f"waiting for {count_of(running, 'job')} to save; once more to stop at once")

    def on_finished(self, job: Job, finished: int) -> None:
        self.console.print(f"{job.name}: finished, {finished} of {len(self._jobs)}")

    def on_failed(self, job: Job, log: Path) -> None:
        self.console.print(f"{job.name}: failed; the end of {log}:\n{last_lines(log)}")

    def on_not_started(self, job: Job, source: Job) -> None:
        self.console.print(f"{job.name}: failed, because it starts from {source.name}")

    def on_died(self, job: Job, code: int) -> None:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        self.console.print(f"{job.name}: {how}; it will be tried again")

    def end(self, outcome: Outcome) -> None:
        """Say what is left to do, and exit with a code that says so too, if something is."""
        go_on = shlex.join(["rims-rl", *sys.argv[1:]])
        if outcome.stopped_by:
            self.console.print(f"stopped; to go on: {go_on}")
            raise SystemExit(128 + outcome.stopped_by)
        if outcome.failed:
            self.console.print(f"{outcome.failed} of {len(self._jobs)} jobs failed; when that is mended: {go_on}")
            raise SystemExit(FAILED)


def print_status(experiment: Experiment) -> None:
    """A table of jobs: finished, running, interrupted or waiting."""
    table = Table("job", "state", experiment.unit, "last said", title=experiment.title)
    states = Counter[str]()
    for job, state, steps, last_said in status(experiment):
        states[state] += 1
        table.add_row(Text(job.name), state, "" if steps is None else f"{steps:,}", Text(last_said))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"{count_of(len(experiment.jobs), 'job')}: " + ", ".join(f"{count} {state}" for state, count in states.items())
    )


def show_measuring(jobs: Iterable[Job]) -> Iterable[Job]:
    """A bar while the speeds of these jobs are measured."""
    return track(list(jobs), "measuring", transient=True)


def print_estimate(experiment: Experiment, estimated: Estimate) -> None:
    """A table of jobs, and how long they would take together."""
    table = Table("job", "state", f"{experiment.unit}/s", "time", title=experiment.title)
    to_do = {job.hash for job in estimated.to_do}
    for job in experiment.jobs:
        if job.hash in to_do:
            speed = f"{estimated.speeds[job.speed_group]:,.0f}"
            table.add_row(Text(job.name), "to do", speed, _duration(estimated.seconds(job)))
        else:
            table.add_row(Text(job.name), "finished", "", "")
    console = Console(highlight=False)
    console.print(table)
    one_for_all = ", one game for all" if any("atari" in group for group in estimated.speeds) else ""
    total, side_by_side, seconds = len(experiment.jobs), estimated.side_by_side, estimated.all_seconds
    console.print(
        f"{total - len(to_do)} of {total} jobs are finished. The others take {_duration(seconds)} of "
        f"training, {_duration(seconds / side_by_side)} with {side_by_side} side by side, without evaluations; "
        f"measured for a few seconds each, one at a time{one_for_all}"
    )


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
