"""``rims-rl suite`` and ``transfer``: whole experiments."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.job_options import DryRun, Engine, Gpus, Jobs, JobThreads, RayAddress, run_options
from rims_rl.cli.options import (
    RESULTS,
    Algo,
    EnvKwargs,
    EnvWrapper,
    FrameStack,
    GymPackages,
    Settings,
    VecEnv,
    env_options,
    read_steps,
)
from rims_rl.common.errors import UserError

if TYPE_CHECKING:
    from rims_rl.jobs.options import RunOptions
    from rims_rl.suites.plan import Plan

suite = typer.Typer(help="List whole experiments, run one, or make its page.")
app.add_typer(suite, name="suite")


SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="Name of a suite of ours, or a .yml file.")]
Results = Annotated[
    Path | None,
    typer.Option(help=f"Folder of results. Default: {RESULTS}/SUITE."),
]
SuiteLogs = Annotated[Path, typer.Option(help="Where the folders of runs are made, below suites/SUITE.")]


@suite.callback(invoke_without_command=True)
def _suite(context: typer.Context) -> None:
    """List the suites that come with rims-rl."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    from rims_rl.suites.plan import read_plan, shipped

    table = Table("suite", "what", "jobs", "steps of each", title="zoo_configs/suites")
    for name in shipped():
        plan = read_plan(name)
        table.add_row(name, plan.suite.title, str(len(plan.all_jobs)), plan.steps)
    Console().print(table)


@suite.command("run")
def _suite_run(
    suite: SuiteName,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Only jobs with this in their name, and those they start from. May be given several times.",
        ),
    ] = None,
    jobs: Jobs = None,
    threads: JobThreads = 1,
    results: Results = None,
    logdir: SuiteLogs = Path("logs"),
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
    dry_run: DryRun = False,
) -> None:
    """Run the jobs that are not finished; after a crash or Ctrl-C, the same command goes on."""
    from rims_rl.suites.plan import read_plan

    plan = read_plan(suite).only(only or ())
    folder, options = results or RESULTS / plan.name, run_options(jobs, threads, engine, ray_address, gpus)
    estimate_here(plan, folder, options) if dry_run else run_here(plan, folder, logdir, options)


@suite.command("job", hidden=True)
def _suite_job(folder: Path, results: Annotated[Path, typer.Option()], threads: Annotated[int, typer.Option()]) -> None:
    """What `suite run` and others start in a process of its own. When they are gone, it stops too."""
    from rims_rl.jobs.job import Job, Stopped

    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    data = json.loads((folder / "job.json").read_text())
    job_class: type[Job]
    kind = data.pop("kind")
    if kind == "supervised":
        from rims_rl.supervised.job import SupervisedJob as job_class
    elif kind == "imitation":
        from rims_rl.imitation.job import ImitationJob as job_class
    elif kind == "trial":
        from rims_rl.tuning.trial_job import TrialJob as job_class
    else:
        from rims_rl.suites.job import AgentJob as job_class
    try:
        job_class.from_json(data).run(folder, results, threads)
    except Stopped as stop:
        print(stop)
        raise SystemExit(128 + stop.signal) from None


@suite.command("status")
def _suite_status(suite: SuiteName, results: Results = None, logdir: SuiteLogs = Path("logs")) -> None:
    """Say how far each job is."""
    from rims_rl.cli.job_display import print_status
    from rims_rl.suites.plan import read_plan

    plan = read_plan(suite)
    print_status(plan.experiment(results or RESULTS / plan.name, logdir))


@suite.command("report")
def _suite_report(
    suite: SuiteName,
    results: Results = None,
    out: Annotated[
        Path | None, typer.Option(help="Markdown file to write, with PNGs beside it. Default: RESULTS.md.")
    ] = None,
) -> None:
    """Write the page of a suite from its results alone."""
    from rims_rl.suites.plan import read_plan

    plan = read_plan(suite)
    report_here(plan, results or RESULTS / plan.name, out)


@app.command("transfer")
def _transfer(
    sources: Annotated[str, typer.Option(metavar="ENV,...", help="What is learned first.")],
    targets: Annotated[str, typer.Option(metavar="ENV,...", help="What is learned then, and from scratch.")],
    core: Annotated[
        str, typer.Option(metavar="CORE,...", help="Among them progressive: frozen columns.")
    ] = "rims,lstm",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    steps: Annotated[int, typer.Option(parser=read_steps, metavar="STEPS", help="Of each run.")] = 1_000_000,
    carry: Annotated[
        str,
        typer.Option(metavar="PARTS", help="What to take over. Default: encoder and core.", show_default=False),
    ] = "encoder=finetune,core=finetune",
    episodes: Annotated[int, typer.Option(min=1, help="Of the evaluation of each policy.")] = 100,
    algo: Algo = "ppo",
    settings: Settings = None,
    gym_packages: GymPackages = None,
    env_kwargs: EnvKwargs = None,
    env_wrapper: EnvWrapper = None,
    frame_stack: FrameStack = None,
    vec_env: VecEnv = None,
    name: Annotated[str, typer.Option(help="Of the suite that this makes: LOGDIR/suites/NAME.yml.")] = "transfer",
    jobs: Jobs = None,
    threads: JobThreads = 1,
    results: Results = None,
    logdir: SuiteLogs = Path("logs"),
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
    dry_run: DryRun = False,
) -> None:
    """Does what was learned elsewhere help? Train on sources, then on targets, and there also from scratch."""
    from rims_rl.cli.job_display import FAILED
    from rims_rl.config.layers import parse_overrides
    from rims_rl.suites.results import read_results
    from rims_rl.suites.transfer import TransferOptions, plan_transfer

    run = run_options(jobs, threads, engine, ray_address, gpus)
    of_envs = env_options(gym_packages, env_kwargs, env_wrapper, frame_stack, vec_env)
    options = TransferOptions(
        sources=_split("--sources", sources),
        targets=_split("--targets", targets),
        cores=_split("--core", core),
        seeds=seeds,
        steps=steps,
        carry=carry,
        episodes=episodes,
        algo=algo,
        settings=parse_overrides(settings or []),
        env_options={key: value for key, value in of_envs.items() if value is not None},
        name=name,
    )
    plan = plan_transfer(options, logdir, write=not dry_run)
    folder = results or RESULTS / plan.name
    if dry_run:
        return estimate_here(plan, folder, run)
    try:
        run_here(plan, folder, logdir, run)
    except SystemExit as stop:
        if stop.code == FAILED and read_results(plan, folder):
            report_here(plan, folder, None)
        raise
    report_here(plan, folder, None)


def run_here(plan: "Plan", results: Path, logdir: Path, options: "RunOptions") -> None:
    """Run a suite and show it; exit with a code if something is left to do."""
    from rims_rl.cli.job_display import Display
    from rims_rl.suites.run import run_suite

    display = Display(plan.experiment(results, logdir))
    display.end(run_suite(plan, results, logdir, options, display))


def estimate_here(plan: "Plan", results: Path, options: "RunOptions") -> None:
    from rims_rl.cli.job_display import print_estimate, show_measuring
    from rims_rl.suites.run import estimate_suite

    print_estimate(plan.experiment(results, Path()), estimate_suite(plan, results, options, show_measuring))


def report_here(plan: "Plan", results: Path, out: Path | None) -> None:
    from rich.console import Console

    from rims_rl.suites.pages.suite_page import report_suite

    report = report_suite(plan, results, out)
    Console(highlight=False).print(
        f"{report.jobs} of {len(plan.all_jobs)} jobs: written to {report.path}", soft_wrap=True
    )


def _split(flag: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise UserError(f"{flag} must be different names with commas between them, got {text!r}")
    return names


def _stop_at_end_of_input() -> None:
    """The process that started this one holds the other end of our standard input, and never writes to it."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
