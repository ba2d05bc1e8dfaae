"""Where jobs run, and how many of them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rims_rl.common.errors import UserError

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class RunOptions:
    jobs: int | None = None  # side by side; None: as many as there is room for
    threads: int = 1  # of each job
    engine: str = "local"  # processes of this machine, or "ray": tasks of a Ray cluster
    ray_address: str | None = None  # host:port of the cluster's head; None: as Ray finds it, or else on this machine
    gpus: float = 0.0  # of each job, on Ray


def check_options(options: RunOptions) -> None:
    """A UserError about an engine that does not exist, or if this machine has too few cores."""
    if options.engine not in ENGINES:
        raise UserError(f"the engine must be {' or '.join(ENGINES)}, got {options.engine!r}")
    jobs, threads, cores = options.jobs or 1, options.threads, os.cpu_count() or 1
    if options.engine == "local" and jobs * threads > cores:
        raise UserError(
            f"{jobs} jobs of {threads} threads are more than the {cores} cores of this machine; "
            f"run {max(1, cores // threads)} side by side, or give each fewer threads"
        )
