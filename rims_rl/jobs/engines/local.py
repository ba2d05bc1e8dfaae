"""Jobs as processes of this machine, a few at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from rims_rl.common.cores import CORES
from rims_rl.jobs.engines.engine import Listener, Outcome, Running, run_with
from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.job import Job
from rims_rl.jobs.options import RunOptions

# Not `python -m`: that would look for rims_rl in the current folder first.
COMMAND = "import sys; sys.path = [path for path in sys.path if path]; from rims_rl.cli import main; main()"


def run_locally(experiment: Experiment, options: RunOptions, listener: Listener) -> Outcome:
    start = partial(_Process, results=experiment.results, threads=options.threads)
    return run_with(start, lambda: options.jobs or CORES // options.threads, experiment, listener)


def start_process(folder: Path, results: Path, threads: int) -> subprocess.Popen[bytes]:
    """The job whose ``job.json`` is in ``folder``. It saves and stops when its standard input is closed, and so when
    the process that called this ends, however that happens."""
    arguments = ["suite", "job", str(folder), "--results", str(results), "--threads", str(threads)]
    with (folder / "log.txt").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C goes to this process alone, which tells its jobs
        )


class _Process(Running):
    def __init__(self, job: Job, folder: Path, results: Path, threads: int) -> None:
        super().__init__(job, folder)
        self._process = start_process(folder, results, threads)

    def exit_code(self) -> int | None:
        code = self._process.poll()
        if code is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def stop(self, at_once: bool) -> None:
        self._process.kill() if at_once else self._process.terminate()
