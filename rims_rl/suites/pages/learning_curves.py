"""Learning curves of a suite in one picture: a panel for each environment, a line for each core."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rims_rl.suites.pages.transfer_scores import POINTS, curve_heights
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results


def draw_curves(plan: Plan, done: Results, envs: list[str]) -> Figure:
    """Means over seeds; ``done`` is of one algorithm."""
    columns = min(6, len(envs))
    rows, wide = math.ceil(len(envs) / columns), max(2, columns)  # one panel is as wide as two, for the names below
    in_a_row = min(len(plan.suite.cores), math.ceil(1.5 * wide))
    height = 2.1 * rows + 0.3 + 0.2 * math.ceil(len(plan.suite.cores) / in_a_row)
    figure = Figure(figsize=(2.6 * wide, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    grid = (np.arange(POINTS) + 0.5) * done[0][0].steps / POINTS
    for env, axes in zip(envs, panels, strict=False):
        for i, core in enumerate(plan.suite.cores):
            curves = [result["curve"] for job, result in done if (job.name_of_env, job.core) == (env, core)]
            lines = [curve_heights(curve) for curve in curves if curve]
            if lines:
                axes.plot(grid, np.mean(lines, 0), lw=1, label=core, **_style(i))
        axes.set_title(env, fontsize=8)
        axes.tick_params(labelsize=6)
        axes.grid(alpha=0.3)
    for axes in panels[len(envs) :]:
        axes.set_axis_off()
    handles = [Line2D([], [], **_style(i)) for i in range(len(plan.suite.cores))]
    figure.legend(handles, list(plan.suite.cores), loc="outside lower center", ncols=in_a_row, fontsize=8)
    return figure


def _style(number: int) -> dict[str, Any]:
    """Of a core's line: ten colours, then the same with dashes, then with dots."""
    return {"color": f"C{number % 10}", "linestyle": ("-", "--", ":")[number // 10 % 3]}
