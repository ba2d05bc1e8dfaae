"""``rims-rl supervised``: train cores on a task with several seeds, and write the page of the task."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from rims_rl.common.errors import UserError
from rims_rl.supervised.task import load, load_ablations
from rims_rl.supervised.task_names import find_task
from rims_rl.supervised.task_page import write_page
from rims_rl.supervised.training import Job, diverged, read_result, run_job


def supervise(
    name: str,
    cores: Sequence[str],
    overrides: Sequence[str],
    ablations: bool,
    seeds: int,
    threads: int,
    workers: int | None,
    results: Path,
    logdir: Path,
    data_dir: Path | None,
) -> None:
    """Train every core with seed 0, then every one with seed 1, and so on; what is finished is not repeated."""
    torch.set_num_threads(threads)
    task = find_task(name)
    if ablations:
        if cores:
            raise UserError(f"--ablations are of RIMs, got --core {cores[0]} too; leave out one of them")
        configs = load_ablations(task, overrides)
    else:
        configs = [load(task, [f"core={core}", *overrides]) for core in cores] if cores else [load(task, overrides)]
    jobs = [Job(task, config, seed) for seed in range(seeds) for config in configs]
    for config in configs:
        task(config, data_dir).network()  # what cannot be built is to be known before the first hour
    for option, folder in (("--results", results / task.name), ("--logdir", logdir / "supervised" / task.name)):
        _check_writable(option, folder)
    for job in jobs:
        run_job(job, logdir, results, data_dir, workers)
    write_page(task, results)
    bad = [job.name for job in jobs if diverged(read_result(job.result(results))["curve"])]
    if bad:
        Console(highlight=False, soft_wrap=True).print(
            f"{len(bad)} of {len(jobs)} trainings diverged, which the page counts as failures: {', '.join(bad)}"
        )


def _check_writable(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{option}: {folder} cannot be written: {error.strerror}") from error
