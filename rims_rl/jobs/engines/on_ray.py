"""Jobs as tasks of a Ray cluster. Folders are on a path that all nodes share, so that a job whose node
died goes on elsewhere from its last checkpoint."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rims_rl.common.errors import UserError
from rims_rl.jobs.engines.engine import Listener, Outcome, Running, run_with
from rims_rl.jobs.engines.local import start_process
from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.job import Job
from rims_rl.jobs.options import RunOptions

try:
    import ray
except ImportError:
    raise UserError("`engine` ray needs Ray, which is not installed; run: pip install 'rims-rl[ray]'") from None

SECONDS_TO_ANSWER = 5.0
HTTP2_SETTINGS = b"\x04"  # the kind of a message, after three bytes for its length
HTTP2_BEGINNING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + HTTP2_SETTINGS + bytes(5)
TLS_ALERT = b"\x15"  # what a head with RAY_USE_TLS answers to the above


def run_on_ray(experiment: Experiment, options: RunOptions, listener: Listener) -> Outcome:
    """Run what is not finished: every job is a task, which waits until a node has its threads as CPUs, and its GPUs."""
    threads, gpus = options.threads, options.gpus
    _connect(options.ray_address)
    try:
        if not _room(threads, gpus):
            raise UserError(f"no node of the cluster has {threads} CPUs and {gpus:g} GPUs; change `threads` or `gpus`")
        task = ray.remote(_run_job).options(num_cpus=threads, num_gpus=gpus, max_retries=0)  # the engine tries again
        start = partial(_Task, task=task, results=experiment.results.absolute(), threads=threads)
        shared = replace(experiment, folder=experiment.folder.absolute())
        return run_with(start, lambda: options.jobs or _room(threads, gpus), shared, listener)
    finally:
        ray.shutdown()


def _room(threads: int, gpus: float) -> int:
    """How many jobs the nodes that are alive have room for; nodes may come and go."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(int(min(r.get("CPU", 0) / threads, r.get("GPU", 0) / gpus if gpus else math.inf)) for r in resources)


def _connect(address: str | None) -> None:
    if address is not None:
        _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray has many, of its own and of others
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"Ray cannot be used at {address or 'this machine'}: {reason}; is RAY_AUTH_MODE=token set here, as it is "
            "there, and the token the same?"
        ) from error


def _knock(address: str) -> None:
    """Ray itself waits for minutes for a head that is not there, or that is none. A head speaks HTTP/2, in which both
    sides begin with their settings."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"`ray_address` must be the host and port of a head, such as 10.0.0.1:6379, got {address!r}")
    try:
        with socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER) as connection:
            connection.sendall(HTTP2_BEGINNING)
            answer = connection.recv(9)
        if answer[3:4] != HTTP2_SETTINGS and answer[:1] != TLS_ALERT:
            raise OSError("what answers is not Ray")
    except (OSError, ValueError) as error:  # ValueError: what cannot be the name of a host
        raise UserError(
            f"no Ray cluster answers at `ray_address` {address} ({error}); start one there with: RAY_AUTH_MODE=token "
            f"ray start --head --port {port}"
        ) from error


class _Task(Running):
    def __init__(self, job: Job, folder: Path, task: Any, results: Path, threads: int) -> None:
        super().__init__(job, folder)
        self._task = task.remote(str(folder), str(results), threads)
        self._cancelled: float | None = None

    def exit_code(self) -> int | None:
        if not ray.wait([self._task], timeout=0)[0]:
            # now and then a task does not get what Ray raises in it to cancel it
            if self._cancelled is not None and time.monotonic() > self._cancelled + SECONDS_TO_ANSWER:
                self.stop(at_once=False)
            return None
        try:
            code, sentence = ray.get(self._task)
        except ray.exceptions.RayError as error:
            code, sentence = _outcome(error)
        with (self.folder / "log.txt").open("a") as log:
            log.write(sentence)
        return int(code)

    def stop(self, at_once: bool) -> None:
        ray.cancel(self._task, force=at_once)
        self._cancelled = time.monotonic()


def _outcome(error: ray.exceptions.RayError) -> tuple[int, str]:
    """The exit code of a task that returned none, and what belongs into the log of its job."""
    if isinstance(error, ray.exceptions.TaskCancelledError):
        return -signal.SIGTERM, ""
    if isinstance(error, ray.exceptions.RayTaskError):  # what was raised on the node, before the job or beside it
        return 1, str(error).strip().splitlines()[-1] + "\n"
    return -signal.SIGKILL, ""  # its worker or its node died


def _run_job(folder: str, results: str, threads: int) -> tuple[int, str]:
    """On a node of the cluster: the job in a process of its own, which saves and stops when this one ends or is
    cancelled. Returns its exit code, and what it could not write into its own log."""
    if not (Path(folder) / "job.json").exists():
        name = socket.gethostname()
        return (
            2,
            f"rims-rl: the node {name} does not see {folder}; give folders that all nodes share\n",
        )
    process = start_process(Path(folder), Path(results), threads)
    try:
        while (code := process.poll()) is None:
            time.sleep(0.2)  # what Ray raises to cancel a task does not interrupt process.wait()
        return code, ""
    except KeyboardInterrupt:
        process.terminate()
        while process.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # cancelled once more
                time.sleep(0.2)
        raise
