"""Options of the commands that run jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rims_rl.jobs.options import RunOptions

Jobs = Annotated[int | None, typer.Option(min=1, help="Jobs side by side. Default: as many as cores allow.")]
JobThreads = Annotated[int, typer.Option(min=1, help="Threads of each job.")]
Engine = Annotated[str, typer.Option(help="local: processes of this machine; ray: tasks of a Ray cluster.")]
RayAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Head of the cluster. Default: found by Ray.")
]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs of each job on Ray; may be a part of one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the jobs, and measure how long they'd take.")]


def run_options(jobs: int | None, threads: int, engine: str, ray_address: str | None, gpus: float) -> "RunOptions":
    """What these say, checked."""
    from rims_rl.jobs.options import RunOptions, check_options

    options = RunOptions(jobs=jobs, threads=threads, engine=engine, ray_address=ray_address, gpus=gpus)
    check_options(options)
    return options
