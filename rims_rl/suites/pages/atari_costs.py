"""What jobs on Atari took, and what the paper's whole table would take at their speeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rims_rl.common.markdown import table
from rims_rl.suites.plan import read_plan
from rims_rl.suites.results import Results

FULL = "atari_paper"
CLUSTERS = (8, 64, 512)  # cores
COMMANDS = f"""```sh
export RAY_AUTH_MODE=token                                       # everywhere, after: ray get-auth-token --generate
ray start --head --port 6379 --num-cpus 0 --block                # on the head
ray start --address HEAD:6379 --block                            # on each worker node
rims-rl suite run {FULL} --engine ray --ray-address HEAD:6379 --logdir /shared/logs --results /shared/results
rims-rl suite report {FULL} --results /shared/results
```"""


def costs_section(done: Results) -> str:
    """Hours and speeds by core, and the estimate."""
    cores: dict[str, list[dict[str, Any]]] = {}
    for job, result in done:
        cores.setdefault(job.core, []).append(result)
    rows = [
        [
            core,
            len(results),
            *(_hours(results, part) for part in ("training", "evaluation")),
            f"{speed_of(results):,.0f}",
        ]
        for core, results in cores.items()
    ]
    hours = hours_of_full_table(done)
    total, longest = sum(sum_ for _, sum_ in hours.values()), max(sum_ / jobs for jobs, sum_ in hours.values())
    parts = [[core, jobs, f"{sum_ / jobs:,.0f}", f"{sum_:,.0f}"] for core, (jobs, sum_) in hours.items()]
    days = ", ".join(f"{max(total / size, longest) / 24:,.1f} days on {size} cores" for size in CLUSTERS)
    return (
        "Means over jobs, which may have run beside others, so that only large differences mean anything:\n\n"
        f"{table(['core', 'jobs', 'hours of training', 'hours of evaluation', 'steps/s'], rows)}\n\n"
        f"At these speeds, training for the paper's whole table (`{FULL}`) takes {total:,.0f} core hours, with one "
        f"thread for each job, as by default, and without evaluations: {days}. RIMs are counted as those that were "
        "measured, however many are active, and cores that were not measured as the slowest that was.\n\n"
        f"{table(['core', 'jobs', 'hours of one', 'core hours'], parts)}\n\n"
        f"On a Ray cluster (how to start one safely is in docs/how-to/suites.md):\n\n{COMMANDS}"
    )


def hours_of_full_table(done: Results) -> dict[str, tuple[int, float]]:
    """How many jobs of each core the paper's table has, and the hours of all of these at the speeds of ``done``."""
    measured: dict[str, list[dict[str, Any]]] = {}
    for _, result in done:
        measured.setdefault(result["definition"]["config"]["core"], []).append(result)
    speeds = {core: speed_of(results) for core, results in measured.items()}
    slowest, hours = min(speeds.values()), dict[str, list[float]]()
    for job in read_plan(FULL).jobs:
        speed = speeds.get(job.definition["config"]["core"], slowest)
        hours.setdefault(job.core, []).append(job.steps / speed / 3600)
    return {core: (len(each), sum(each)) for core, each in hours.items()}


def speed_of(results: list[dict[str, Any]]) -> float:
    """Steps of training per second."""
    return sum(result["steps"] for result in results) / sum(result["seconds"]["training"] for result in results)


def _hours(results: list[dict[str, Any]], part: str) -> str:
    return f"{np.mean([result['seconds'][part] for result in results]) / 3600:.2f}"
