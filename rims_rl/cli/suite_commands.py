"""``rims-rl suite`` and ``transfer``: whole experiments."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import Algo, Set

suite = typer.Typer(help="List whole experiments, run one, or make its page.")
app.add_typer(suite, name="suite")


SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="Name of a suite of ours, or a .yml file.")]
Results = Annotated[
    Path | None,
    typer.Option(help="Folder of results. Default: docs/results/SUITE if there is docs/results, else results/SUITE."),
]
SuiteLogs = Annotated[Path, typer.Option(help="Where the folders of runs are made, below suites/SUITE.")]


@suite.callback(invoke_without_command=True)
def _suite(context: typer.Context) -> None:
    """List the suites that come with rims-rl."""
    if context.invoked_subcommand is None:
        from rims_rl.suites.plan import print_shipped

        print_shipped()


Jobs = Annotated[int | None, typer.Option(min=1, help="Jobs side by side. Default: as many as cores allow.")]
JobThreads = Annotated[int, typer.Option(min=1, help="Threads of each job.")]
Engine = Annotated[str, typer.Option(help="local: processes of this machine; ray: tasks of a Ray cluster.")]
RayAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Head of the cluster. Default: found by Ray.")
]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs of each job on Ray; may be a part of one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the jobs, and measure how long they'd take.")]


@suite.command("run")
def _suite_run(
    suite: SuiteName,
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
    from rims_rl.suites.run import How, run
    from rims_rl.suites.storage import results_folder

    plan = read_plan(suite)
    run(plan, results_folder(plan, results), logdir, How(jobs, threads, dry_run, engine, ray_address, gpus))


@suite.command("job", hidden=True)
def _suite_job(folder: Path, results: Annotated[Path, typer.Option()], threads: Annotated[int, typer.Option()]) -> None:
    """What `suite run` starts in a process of its own."""
    from rims_rl.suites.job import run_job_of

    run_job_of(folder, results, threads)


@suite.command("status")
def _suite_status(suite: SuiteName, results: Results = None, logdir: SuiteLogs = Path("logs")) -> None:
    """Say how far each job is."""
    from rims_rl.suites.plan import read_plan
    from rims_rl.suites.status import print_status
    from rims_rl.suites.storage import results_folder

    plan = read_plan(suite)
    print_status(plan, results_folder(plan, results), logdir)


@suite.command("report")
def _suite_report(
    suite: SuiteName,
    results: Results = None,
    out: Annotated[
        Path | None, typer.Option(help="Markdown file to write, with PNGs beside it. Default: RESULTS.md.")
    ] = None,
) -> None:
    """Write the page of a suite from its results alone."""
    from rims_rl.suites.pages.suite_page import report_suite
    from rims_rl.suites.plan import read_plan
    from rims_rl.suites.storage import results_folder

    plan = read_plan(suite)
    report_suite(plan, results_folder(plan, results), out)


@app.command("transfer")
def _transfer(
    sources: Annotated[str, typer.Option(metavar="ENV,...", help="What is learned first.")],
    targets: Annotated[str, typer.Option(metavar="ENV,...", help="What is learned then, and from scratch.")],
    core: Annotated[
        str, typer.Option(metavar="CORE,...", help="Among them progressive: frozen columns.")
    ] = "rims,lstm",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Of each run.")] = 1_000_000,
    carry: Annotated[
        str, typer.Option(metavar="PARTS", help="What to take over, such as encoder=freeze,core=finetune,rims=0,2.")
    ] = "encoder=finetune,core=finetune",
    episodes: Annotated[int, typer.Option(min=1, help="Of the evaluation of each policy.")] = 100,
    algo: Algo = "ppo",
    set_: Set = None,
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
    from rims_rl.suites.run import How
    from rims_rl.suites.transfer import transfer

    how = How(jobs, threads, dry_run, engine, ray_address, gpus)
    transfer(sources, targets, core, seeds, steps, carry, episodes, algo, set_ or [], name, results, logdir, how)
