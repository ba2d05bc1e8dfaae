"""Where jobs run, and how many of them."""

from __future__ import annotations

from rims_rl.common.cores import CORES
from rims_rl.common.errors import UserError
from rims_rl.common.options import Count, Options
from rims_rl.common.words import count_of


class RunOptions(Options):
    jobs: Count | None = None  # side by side; None: as many as there is room for
    threads: Count = 1  # of each job
    engine: str = "local"  # processes of this machine, or "ray": tasks of a Ray cluster
    ray_address: str | None = None  # host:port of the cluster's head; None: as Ray finds it, or else on this machine
    gpus: float = 0.0  # of each job, on Ray


def check_options(options: RunOptions) -> None:
    """A UserError about options that do not fit each other or this machine."""
    if options.engine not in ("local", "ray"):
        raise UserError(f"`engine` must be local or ray, got {options.engine!r}")
    if options.engine == "ray":
        return
    if options.ray_address or options.gpus:
        raise UserError("`ray_address` and `gpus` are for `engine` ray; add that, or leave them out")
    jobs, threads = options.jobs or 1, options.threads
    if jobs * threads > CORES:
        raise UserError(
            f"{count_of(jobs, 'job')} of {count_of(threads, 'thread')} are more than the {CORES} cores of this "
            f"machine; give `jobs` {max(1, CORES // threads)}, or fewer `threads`"
        )
