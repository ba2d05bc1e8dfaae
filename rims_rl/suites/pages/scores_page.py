"""The page of a suite in which cores are compared by their returns, such as in tasks that need a memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rims_rl.common.figures import save_figure
from rims_rl.common.markdown import table
from rims_rl.suites.pages.estimates import estimate, mean
from rims_rl.suites.pages.learning_curves import draw_curves
from rims_rl.suites.pages.transfer_scores import curve_heights
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results

Seeds = list[dict[str, Any]]  # the results of one core in one environment
Cells = dict[str, dict[str, Seeds]]  # environment -> core -> results


def scores_page(plan: Plan, done: Results, out: Path) -> str:
    """One part for each algorithm: returns, areas under learning curves and their picture, sizes and speeds."""
    parts = []
    for algo in plan.suite.algos:
        if ours := [(job, result) for job, result in done if job.algo == algo]:
            stem = out.stem if len(plan.suite.algos) == 1 else f"{out.stem}_{algo}"
            parts.append(_part(plan, ours, algo, out.with_name(f"{stem}_curves.png")))
    return "\n\n".join(parts)


def _part(plan: Plan, done: Results, algo: str, picture: Path) -> str:
    cells: Cells = {}
    for job, result in done:
        cells.setdefault(job.name_of_env, {}).setdefault(job.core, []).append(result)
    cells = {env: cells[env] for env in dict.fromkeys(job.name_of_env for job in plan.jobs) if env in cells}
    save_figure(draw_curves(plan, done, list(cells)), picture, dpi=90)
    actions = "most likely" if done[0][1]["evaluation"]["deterministic"] else "sampled"
    sections = [
        f"## Returns, {algo}\n\nMean return over {plan.suite.evaluation.episodes} episodes of the last policy, after "
        f"{done[0][0].steps:,} steps, with the {actions} actions; mean over the seeds that are in, with 95 % bootstrap "
        "intervals where they are several. With few seeds these are rather too narrow; with two, they are the two "
        f"seeds.\n\n{_by_env(plan, cells, _returns)}",
        f"## Areas under the learning curves, {algo}\n\nMean return of the episodes played while learning, all of "
        "training counted alike: how early a core learns, and not only how far. Means and intervals as above.\n\n"
        f"{_by_env(plan, cells, _areas)}",
        f"## Learning curves, {algo}\n\n![Learning curves]({picture.name})\n\nReturns of episodes played while "
        "learning, means over seeds.",
        f"## Sizes, {algo}\n\nParameters of a whole policy, and in brackets those of its core:\n\n"
        f"{_by_env(plan, cells, _size)}",
        f"## Speed, {algo}\n\nSteps of training per second, means over seeds. They are of jobs that may have run side "
        f"by side with others, so only large differences mean anything.\n\n{_by_env(plan, cells, _speed)}",
    ]
    return "\n\n".join(sections)


def _by_env(plan: Plan, cells: Cells, text: Callable[[Seeds], str]) -> str:
    """A row for each environment, a column for each core; a cell is empty where nothing is in yet."""
    cores = [core for core in plan.suite.cores if any(core in of_env for of_env in cells.values())]
    rows = [[env, *(text(of_env[core]) if core in of_env else "" for core in cores)] for env, of_env in cells.items()]
    return table(["environment", *cores], rows)


def _returns(seeds: Seeds) -> str:
    return _mean([result["evaluation"]["mean"] for result in seeds])


def _areas(seeds: Seeds) -> str:
    return _mean([float(curve_heights(result["curve"]).mean()) for result in seeds if result["curve"]])


def _size(seeds: Seeds) -> str:
    count = seeds[0]["parameters"]
    return f"{sum(count.values()):,} ({count['core']:,})"


def _speed(seeds: Seeds) -> str:
    return f"{np.mean([result['steps'] / result['seconds']['training'] for result in seeds]):,.0f}"


def _mean(values: list[float]) -> str:
    """Over seeds, of which a short training may leave none: then no episode has ended."""
    return str(estimate(mean, np.array(values)[:, None])) if values else ""
