"""The jobs of a supervised experiment: one task, one or several cores, several seeds.

::

    <results>/<task>/<job>.json          what came out; a job whose hash is here is finished
    <logdir>/supervised/<task>/<job>/    checkpoint.pt while it trains, then network.safetensors
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from rims_rl.common.errors import UserError
from rims_rl.common.options import Count, Options
from rims_rl.jobs.experiment import Experiment
from rims_rl.supervised.job import SupervisedJob, read_result
from rims_rl.supervised.task import load, load_ablations
from rims_rl.supervised.task_names import find_task
from rims_rl.supervised.training import diverged


class SupervisedOptions(Options):
    task: str
    cores: Sequence[str] = ()  # none: the one of the task's settings
    settings: dict[str, Any] = Field(default_factory=dict)  # over those of the zoo; dots for keys of mappings
    ablations: bool = False  # RIMs of the task's ablation table instead of cores
    seeds: Count = 1  # how many
    workers: int | None = None  # processes that make data; None: as many as the task says
    data_dir: Path | None = None  # of MNIST's files; None: in the user's cache


def plan_experiment(options: SupervisedOptions, results: Path, logdir: Path) -> Experiment:
    """Every core with seed 0, then every one with seed 1, and so on."""
    task = find_task(options.task)
    if options.ablations:
        if options.cores:
            raise UserError(f"`ablations` are of RIMs, got `core` {options.cores[0]} too; leave out one of them")
        configs = load_ablations(task, options.settings)
    else:
        cores = [{"core": core} for core in options.cores] or [{}]
        configs = [load(task, core | options.settings) for core in cores]
    wanted = [task(config, options.data_dir) for config in configs]
    for each in wanted:
        each.check()
    for each in wanted:
        each.network()  # what cannot be built is to be known before the first hour
    jobs = [
        SupervisedJob(task, config, seed, options.workers, options.data_dir)
        for seed in range(options.seeds)
        for config in configs
    ]
    return Experiment(task.name, task.title, jobs, results / task.name, logdir / "supervised" / task.name)


def diverged_jobs(experiment: Experiment) -> list[str]:
    """Names of the jobs that are finished because their training diverged."""
    done = experiment.finished()
    return [job.name for job in experiment.jobs if job.hash in done and diverged(read_result(done[job.hash])["curve"])]
