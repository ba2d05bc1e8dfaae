"""``rims-rl suite run``: where the jobs of a suite are run, or what they would take."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rims_rl.common.errors import UserError
from rims_rl.suites.carry_check import check_transfers
from rims_rl.suites.engines.local import check_room, run_suite
from rims_rl.suites.estimate import print_estimate
from rims_rl.suites.plan import Plan


class How(NamedTuple):
    """What the command line says about running, besides what to run."""

    jobs: int | None = None  # side by side; None: as many as there is room for
    threads: int = 1  # of each job
    dry_run: bool = False
    engine: str = "local"  # or "ray"
    ray_address: str | None = None
    gpus: float = 0.0  # of each job, on Ray


def check(how: How) -> None:
    """A UserError about what the command line says."""
    if how.engine not in ("local", "ray"):
        raise UserError(f"--engine must be local or ray, got {how.engine!r}")
    if how.engine == "local" and (how.ray_address or how.gpus):
        raise UserError("--ray-address and --gpus are for --engine ray; add that, or leave them out")
    if how.engine == "local":
        check_room(how.jobs, how.threads)


def run(plan: Plan, results: Path, logdir: Path, how: How) -> None:
    check(how)
    if how.dry_run:
        check_transfers(plan)
        print_estimate(plan, results, how.jobs, how.threads)
    elif how.engine == "local":
        run_suite(plan, results, logdir, how.jobs, how.threads)
    else:
        from rims_rl.suites.engines.on_ray import run_suite_on_ray  # Ray is an extra

        run_suite_on_ray(plan, results, logdir, how.jobs, how.threads, how.gpus, how.ray_address)
