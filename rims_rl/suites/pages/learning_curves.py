"""Learning curves of a suite in one picture: a panel for each environment, a line for each core."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rims_rl.suites.pages.transfer_scores import POINTS, curve_heights
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results


def draw_curves(plan: Plan, done: Results, envs: list[str]) -> Figure:
    """Means over seeds; ``done`` is of one algorithm."""
    columns = min(6, len(envs))
    rows = math.ceil(len(envs) / columns)
    figure = Figure(figsize=(2.6 * columns, 2.1 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    grid = (np.arange(POINTS) + 0.5) * done[0][0].steps / POINTS
    for env, axes in zip(envs, panels, strict=False):
        for i, core in enumerate(plan.suite.cores):
            curves = [result["curve"] for job, result in done if (job.name_of_env, job.core) == (env, core)]
            lines = [curve_heights(curve) for curve in curves if curve]
            if lines:
                axes.plot(grid, np.mean(lines, 0), color=f"C{i}", lw=1, label=core)
        axes.set_title(env, fontsize=8)
        axes.tick_params(labelsize=6)
        axes.grid(alpha=0.3)
    for axes in panels[len(envs) :]:
        axes.set_axis_off()
    handles = [Line2D([], [], color=f"C{i}") for i in range(len(plan.suite.cores))]
    columns = min(len(handles), math.ceil(columns * 1.5))  # no more than fit below the panels
    figure.legend(handles, list(plan.suite.cores), loc="outside lower center", ncols=columns, fontsize=8)
    return figure
