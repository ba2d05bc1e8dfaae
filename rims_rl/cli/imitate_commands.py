"""``rims-rl imitate``: networks that learn from pictures to do as an expert does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.job_options import DryRun, Engine, Gpus, RayAddress, run_options
from rims_rl.cli.options import RESULTS, Settings, Trust
from rims_rl.common.cores import THREADS
from rims_rl.common.errors import UserError

if TYPE_CHECKING:
    from rims_rl.jobs.experiment import Experiment
    from rims_rl.jobs.options import RunOptions


@app.command("imitate")
def _imitate(
    expert: Annotated[
        str | None,
        typer.Argument(help="Folder of a run, .safetensors, .zip of Stable-Baselines3, or minari:DATASET."),
    ] = None,
    env: Annotated[str | None, typer.Option(help="What it is to play, if not what it was trained on.")] = None,
    core: Annotated[
        list[str] | None, typer.Option(help="As for train; may be given several times. Default: rims.")
    ] = None,
    settings: Settings = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The four networks of the paper's table, gru and rims-robust.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Train with seeds 0, 1, ... up to so many.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings side by side, in processes of their own. Default: one, here.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each training. Default: all cores, or 1 with --jobs or ray.")
    ] = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
    trust: Trust = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of trajectories. Default: in your cache.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of results.")] = RESULTS / "imitation",
    logdir: Annotated[Path, typer.Option(help="Where checkpoints and networks are kept.")] = Path("logs"),
    dry_run: DryRun = False,
    status: Annotated[bool, typer.Option("--status", help="Only say how far each training is.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Only write the page, from the results there are.")] = False,
) -> None:
    """Clone an expert's behaviour from pictures, and test it; the same command goes on after an interruption."""
    if page:
        return _write_page(results)
    if expert is None:
        raise UserError("which expert is missing: give the folder of a run, a .zip, or minari:DATASET")
    from rims_rl.cli.job_display import print_estimate, print_status, show_measuring
    from rims_rl.cli.options import local_run
    from rims_rl.cli.supervised_commands import check_folder
    from rims_rl.config.layers import parse_overrides
    from rims_rl.imitation.experiment import EXAMPLES, ImitateOptions, plan_imitation
    from rims_rl.jobs.estimate import estimate

    here = jobs is None and engine == "local"
    options = run_options(jobs, 1 if here else threads or 1, engine, ray_address, gpus)
    if here:
        options = options.model_copy(update={"jobs": 1, "threads": threads or THREADS})
    for option, folder in (("--results", results), ("--logdir", logdir)):
        check_folder(option, folder)
    wanted = ImitateOptions(
        expert=expert if expert.startswith("minari:") else str(local_run(Path(expert))),
        env=env,
        cores=core or [],
        settings=parse_overrides(settings or [], EXAMPLES),
        paper=paper,
        seeds=seeds,
        data_dir=data_dir,
        trust=trust,
        progress=True,
    )
    experiment = plan_imitation(wanted, results, logdir)
    if status:
        return print_status(experiment)
    if dry_run:
        return print_estimate(experiment, estimate(experiment, options, show_measuring))
    _train(experiment, options, here, results)
    _write_page(results)


def _train(experiment: "Experiment", options: "RunOptions", here: bool, results: Path) -> None:
    from rims_rl.cli.supervised_commands import train_here, train_side_by_side

    if here:
        train_here(experiment, options.threads)
    else:
        train_side_by_side(experiment, options, lambda: _write_page(results))


def _write_page(results: Path) -> None:
    from rich.console import Console

    from rims_rl.imitation.imitation_page import write_page

    page = write_page(results)
    Console(highlight=False, soft_wrap=True).print(f"{page.results} results: written to {page.path}")
