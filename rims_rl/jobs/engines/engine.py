"""Runs jobs, wherever: what comes first, what died and is tried again, and when to stop."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from rims_rl.common.files import write_json
from rims_rl.common.signals import signal_handler
from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.job import Job, is_held

ATTEMPTS = 3  # of one job


class Running(ABC):
    """A job that has been started; an engine says how."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.progress = job, folder, job.progress(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "job.json", {"kind": job.kind, **job.to_json()})

    @abstractmethod
    def exit_code(self) -> int | None:
        """None while it runs; 0: it is finished; 2: it has said what is wrong; below 0: it was ended by a signal."""

    @abstractmethod
    def stop(self, at_once: bool) -> None:
        """Let it save and end, or end it at once."""


class Outcome(NamedTuple):
    """Of running an experiment."""

    failed: int  # jobs, those among them that would have started from others that failed
    stopped_by: int | None  # the signal, if there was one


class Listener:
    """Follows jobs while they run. This one keeps quiet; the command line has one that prints."""

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def on_begin(self, experiment: Experiment, finished: int) -> None:
        """Before anything is started."""

    def on_look(self, running: Sequence[Running], waiting: set[str], finished: int) -> None:
        """A few times a second; ``waiting`` are hashes of jobs."""

    def on_stop(self, running: int) -> None:
        """So many jobs have been asked to save and end."""

    def on_finished(self, job: Job, finished: int) -> None:
        """One is finished, and ``finished`` with it."""

    def on_failed(self, job: Job, log: Path) -> None:
        """One will not be tried again."""

    def on_not_started(self, job: Job, source: Job) -> None:
        """One will not be tried, because it would have started from one that failed."""

    def on_died(self, job: Job, code: int) -> None:
        """One ended with this exit code, and will be tried again."""


Start = Callable[[Job, Path], Running]


def run_with(start: Start, room: Callable[[], int], experiment: Experiment, listener: Listener) -> Outcome:
    """Run what is not finished, as many side by side as there is ``room`` for."""
    engine = _Engine(start, room, experiment, listener)
    with signal_handler(engine.on_signal):
        engine.run()
    return Outcome(engine.failed, engine.signals[0] if engine.signals else None)


class _Engine:
    def __init__(self, start: Start, room: Callable[[], int], experiment: Experiment, listener: Listener) -> None:
        self._start_job, self._room, self._experiment, self._listener = start, room, experiment, listener
        done = experiment.finished()
        self._waiting = deque(job for job in experiment.jobs if job.hash not in done)
        self._finished = len(experiment.jobs) - len(self._waiting)
        self._running: list[Running] = []
        self._attempts: Counter[str] = Counter()
        self.signals: list[int] = []
        self.failed = 0

    def run(self) -> None:
        self._listener.on_begin(self._experiment, self._finished)
        obeyed = 0  # signals
        try:
            with self._listener as listener:
                while self._running or (self._waiting and not self.signals):
                    self._start()
                    if obeyed < len(self.signals):
                        self._stop(at_once=obeyed > 0)
                        obeyed += 1
                    self._collect()
                    listener.on_look(self._running, {job.hash for job in self._waiting}, self._finished)
                    time.sleep(0.2)
        finally:
            for running in self._running:  # something went wrong here: let them save
                running.stop(at_once=False)
            while any(running.exit_code() is None for running in self._running):
                time.sleep(0.2)

    def on_signal(self, number: int, frame: Any) -> None:
        self.signals.append(number)

    def _start(self) -> None:
        while not self.signals and len(self._running) < self._room() and (job := self._next()):
            self._waiting.remove(job)
            self._attempts[job.hash] += 1
            self._running.append(self._start_job(job, self._experiment.folder_of(job)))

    def _next(self) -> Job | None:
        """The first that waits for nobody, and at which no other command is, if there is one."""
        unfinished = {job.hash for job in self._waiting} | {running.job.hash for running in self._running}
        ready = [job for job in self._waiting if unfinished.isdisjoint(job.sources)]
        free = (job for job in ready if not is_held(self._experiment.folder_of(job)))
        return next(free, ready[0] if ready else None)

    def _stop(self, at_once: bool) -> None:
        for running in self._running:
            running.stop(at_once)
        if self._running and not at_once:
            self._listener.on_stop(len(self._running))

    def _collect(self) -> None:
        codes = [(running, running.exit_code()) for running in self._running]
        for running, code in codes:
            if code is None:
                continue
            self._running.remove(running)
            job = running.job
            if code == 0:
                self._finished += 1
                self._listener.on_finished(job, self._finished)
            elif self.signals:
                continue
            elif code == 2 or self._attempts[job.hash] == ATTEMPTS:  # 2: a sentence that will be true next time too
                self._listener.on_failed(job, running.folder / "log.txt")
                self._give_up(job)
            else:
                self._waiting.append(job)
                self._listener.on_died(job, code)

    def _give_up(self, job: Job) -> None:
        """A job, and those that would start from it."""
        self.failed += 1
        for other in [other for other in self._waiting if job.hash in other.sources]:
            self._waiting.remove(other)
            self.failed += 1
            self._listener.on_not_started(other, job)
