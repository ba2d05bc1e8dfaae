"""``rims-rl supervised``: the paper's supervised tasks."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.job_options import DryRun, Engine, Gpus, RayAddress, run_options
from rims_rl.cli.options import RESULTS
from rims_rl.common.cores import THREADS
from rims_rl.common.errors import UserError

if TYPE_CHECKING:
    from rims_rl.jobs.experiment import Experiment
    from rims_rl.jobs.options import RunOptions


@app.command("supervised")
def _supervised(
    task: Annotated[str | None, typer.Argument(help="Name of a task, such as copying.")] = None,
    core: Annotated[
        list[str] | None, typer.Option(help="As for train, or transformer; may be given several times. Default: rims.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override one value. core_kwargs.NAME=VALUE changes one option of the core and keeps the others, "
            "core_kwargs={...} replaces all of them.",
        ),
    ] = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Train RIMs of the task's ablation table.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Train with seeds 0, 1, ... up to so many.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings side by side, in processes of their own. Default: one, here.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each training. Default: all cores, or 1 with --jobs or ray.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that make data. Default: the task's.")] = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that tasks download. Default: in your cache.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of results.")] = RESULTS / "supervised",
    logdir: Annotated[Path, typer.Option(help="Where checkpoints and networks are kept.")] = Path("logs"),
    dry_run: DryRun = False,
    status: Annotated[bool, typer.Option("--status", help="Only say how far each training is.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Only write the page of TASK from its results.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the tasks.")] = False,
) -> None:
    """Train cores on one of the paper's supervised tasks; the same command goes on after an interruption."""
    if list_:
        return _print_tasks()
    if task is None:
        raise UserError("which task is missing: give one, such as copying; --list shows them")
    if page:
        return _write_page(task, results)
    from rims_rl.cli.job_display import print_estimate, print_status, show_measuring
    from rims_rl.config.layers import parse_overrides
    from rims_rl.jobs.estimate import estimate
    from rims_rl.supervised.experiment import SupervisedOptions, plan_experiment
    from rims_rl.supervised.task import EXAMPLES

    here = jobs is None and engine == "local"
    options = run_options(jobs, 1 if here else threads or 1, engine, ray_address, gpus)
    if here:
        options = options.model_copy(update={"jobs": 1, "threads": threads or THREADS})
    wanted = SupervisedOptions(
        task=task,
        cores=core or [],
        settings=parse_overrides(settings or [], EXAMPLES),
        ablations=ablations,
        seeds=seeds,
        workers=workers,
        data_dir=data_dir,
    )
    experiment = plan_experiment(wanted, results, logdir)
    if status:
        return print_status(experiment)
    _print_cores(experiment)
    if dry_run:
        return print_estimate(experiment, estimate(experiment, options, show_measuring))
    for option, folder in (("--results", experiment.results), ("--logdir", experiment.folder)):
        check_folder(option, folder)
    if here:
        train_here(experiment, options.threads)
    else:
        train_side_by_side(experiment, options, lambda: _write_page(task, results))
    _write_page(task, results)
    _print_diverged(experiment)


def _print_cores(experiment: "Experiment") -> None:
    """The settings of each core as they are after all that was given."""
    from rich.console import Console

    from rims_rl.core import has_rims
    from rims_rl.supervised.job import SupervisedJob

    lines = []
    for job in experiment.jobs:
        assert isinstance(job, SupervisedJob)
        config = job.config
        rims = f" {config.num_rims}/{config.num_active}" if has_rims(config.core) else ""
        options = ", ".join(f"{name}={value}" for name, value in config.core_kwargs.items()) or "none"
        layers = "1 layer" if config.num_layers == 1 else f"{config.num_layers} layers"
        lines.append(f"core {config.core}{rims}, {config.hidden_size} units, {layers}, core_kwargs: {options}")
    Console(highlight=False, soft_wrap=True, markup=False).print("\n".join(dict.fromkeys(lines)))


def train_here(experiment: "Experiment", threads: int) -> None:
    """One after the other, in this process."""
    from rims_rl.cli.training_display import TrainingDisplay
    from rims_rl.jobs.job import Stopped
    from rims_rl.supervised.job import SupervisedJob

    for job in experiment.jobs:
        assert isinstance(job, SupervisedJob)
        display = TrainingDisplay()
        try:
            replace(job, watcher=display).run(experiment.folder_of(job), experiment.results, threads)
        except Stopped as stop:
            display.console.print(stop)
            raise SystemExit(128 + stop.signal) from None


def train_side_by_side(experiment: "Experiment", options: "RunOptions", write_page: Callable[[], None]) -> None:
    """In processes of their own; when some fail, the page is written of the others."""
    from rims_rl.cli.job_display import FAILED, Display
    from rims_rl.jobs.run import run_jobs

    display = Display(experiment)
    try:
        display.end(run_jobs(experiment, options, display))
    except SystemExit as stop:
        if stop.code == FAILED and experiment.finished():
            write_page()
        raise


def _write_page(task: str, results: Path) -> None:
    from rich.console import Console

    from rims_rl.supervised.task_names import find_task
    from rims_rl.supervised.task_page import write_page

    page = write_page(find_task(task), results)
    Console(highlight=False, soft_wrap=True).print(f"{page.results} results: written to {page.path}")


def _print_diverged(experiment: "Experiment") -> None:
    from rich.console import Console

    from rims_rl.supervised.experiment import diverged_jobs

    if bad := diverged_jobs(experiment):
        Console(highlight=False, soft_wrap=True).print(
            f"{len(bad)} of {len(experiment.jobs)} trainings diverged, which the page counts as failures: "
            f"{', '.join(bad)}"
        )


def _print_tasks() -> None:
    from rich.console import Console
    from rich.table import Table

    from rims_rl.supervised.task import load
    from rims_rl.supervised.task_names import TASKS

    table = Table("task", "what", "iterations", "batch", "core", title="rims-rl supervised TASK")
    for name, task in TASKS.items():
        config = load(task)
        core = f"{config.core} {config.num_rims}/{config.num_active}, {config.hidden_size} units"
        table.add_row(name, task.title, f"{config.iterations:,}", str(config.batch_size), core)
    Console().print(table)


def check_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{option}: {folder} cannot be written: {error.strerror}") from error
