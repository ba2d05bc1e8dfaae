"""``rims-rl supervised``: the paper's supervised tasks."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import CORES, Set, Threads
from rims_rl.common.errors import UserError


@app.command("supervised")
def _supervised(
    task: Annotated[str | None, typer.Argument(help="Name of a task, such as copying.")] = None,
    core: Annotated[
        list[str] | None, typer.Option(help="As for train, or transformer; may be given several times. Default: rims.")
    ] = None,
    set_: Set = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Train RIMs of the task's ablation table.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Train with seeds 0, 1, ... up to so many.")] = 1,
    threads: Threads = CORES,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that make data. Default: the task's.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of MNIST's files. Default: in your cache.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results. Default: docs/results/supervised in a checkout, else results/supervised."
        ),
    ] = None,
    logdir: Annotated[Path, typer.Option(help="Where checkpoints and networks are kept.")] = Path("logs"),
    page: Annotated[bool, typer.Option("--page", help="Only write the page of TASK from its results.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the tasks.")] = False,
) -> None:
    """Train cores on one of the paper's supervised tasks; the same command goes on after an interruption."""
    from rims_rl.supervised.task_names import find_task, print_tasks

    if list_:
        print_tasks()
        return
    if task is None:
        raise UserError("which task is missing: give one, such as copying; --list shows them")
    published = Path("docs/results")
    results = results or (published if published.is_dir() else Path("results")) / "supervised"
    if page:
        from rims_rl.supervised.task_page import write_page

        write_page(find_task(task), results)
        return
    from rims_rl.supervised.experiment import supervise

    supervise(task, core or [], set_ or [], ablations, seeds, threads, workers, results, logdir, data_dir)
