"""Frozen policies in the variants of their environment, as JSON and picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import Progress

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import write_json
from rims_rl.common.words import count_of
from rims_rl.envs.variants import choose_variants
from rims_rl.evaluation.compare import check_comparable, compare_runs
from rims_rl.evaluation.options import VariantsOptions
from rims_rl.evaluation.play_variants import describe_run, play_variants
from rims_rl.runs.environment import resolve_saved
from rims_rl.runs.provenance import provenance

Cell = tuple[float, Sequence[float] | None]  # a value and its interval
INTERVALS = {
    "success_95": "Wilson's score interval, over episodes",
    "return_95": "percentile bootstrap of the mean, over episodes",
    "drop_95": "of success: Newcombe's interval (method 10) for independent rates; of return: percentile bootstrap",
    "iqm_95, drop_iqm_95, probability_95": "stratified percentile bootstrap, over seeds",
}


@dataclass(frozen=True)
class VariantsResult:
    """What :func:`~rims_rl.evaluation.play_variants.play_variants` says of each run and, if there are several,
    what :func:`~rims_rl.evaluation.compare.compare_runs` says of all."""

    file: Path
    picture: Path
    runs: list[dict[str, Any]]
    comparison: dict[str, Any] | None

    @property
    def notes(self) -> list[str]:
        return list((self.comparison or self.runs[0])["notes"])


def evaluate_variants(options: VariantsOptions) -> VariantsResult:
    """Play each of the runs in all variants, write what came out, and compare cores if there are several.

    All runs are looked at before the first is played, which may take long.
    """
    started, runs, episodes = time.time(), options.runs, options.episodes
    loaded = [(run, *load_policy(run, trust=options.trust)) for run in runs]
    env = resolve_saved(loaded[0][2])
    check_comparable([describe_run(*one) for one in loaded])
    out = options.out or (_result_path(runs[0]) if len(runs) == 1 else Path(f"{env.name}_variants.json"))
    if out.suffix != ".json":
        raise UserError(f"`out` must end in .json, and a .png will be beside it; got {out}")
    count = len(choose_variants(env, options.variants)) * episodes * len(runs)
    with Progress(transient=True, disable=not options.progress) as progress:
        bar = progress.add_task(f"{count:,} episodes of {env.name}", total=count)
        results = [play_variants(run, options, lambda: progress.advance(bar)) for run in runs]
    comparison = None if len(runs) == 1 else compare_runs(results)
    data: dict[str, Any] = results[0] if comparison is None else {"comparison": comparison, "runs": results}
    write_json(out, {**data, "intervals": INTERVALS, **provenance(started)})
    if comparison is None:
        title = f"{env.name}, {data['core']}, one run, {episodes} episodes each"
        picture = draw_bars({data["core"]: cells_of(data)}, metric_of(data), title, out)
    else:
        title = f"{env.name}, {episodes} episodes each"
        picture = draw_bars(_cells_of_groups(comparison), f"{comparison['metric']}, interquartile mean", title, out)
    return VariantsResult(out, picture, results, comparison)


def _result_path(run: Path) -> Path:
    return run / "variants.json" if run.is_dir() else run.with_suffix(".variants.json")


def metric_of(result: dict[str, Any]) -> str:
    return "return" if next(iter(result["variants"].values()))["success"] is None else "success"


def cells_of(result: dict[str, Any]) -> dict[str, Cell]:
    metric = metric_of(result)
    return {name: (played[metric], played[f"{metric}_95"]) for name, played in result["variants"].items()}


def _cells_of_groups(comparison: dict[str, Any]) -> dict[str, dict[str, Cell]]:
    return {
        f"{label}, {count_of(len(group['seeds']), 'seed')}": {
            name: (played["iqm"], played["iqm_95"]) for name, played in group["variants"].items()
        }
        for label, group in comparison["groups"].items()
    }


def draw_bars(groups: dict[str, dict[str, Cell]], metric: str, title: str, out: Path) -> Path:
    """Names from left to right, each with one bar for each group. Returns the picture: ``out``, but ``.png``."""
    names = list(next(iter(groups.values())))
    figure = Figure(figsize=(2 + max(4.0, 0.3 * len(names) * (len(groups) + 1)), 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(groups)
    for number, (label, cells) in enumerate(groups.items()):
        at = np.arange(len(names)) + (number - (len(groups) - 1) / 2) * width
        values = [cells[name][0] for name in names]
        axes.bar(at, values, width, label=label)
        for x, (value, interval) in zip(at, cells.values(), strict=True):
            if interval is not None:
                axes.errorbar(x, value, [[value - interval[0]], [interval[1] - value]], color="black", capsize=2)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set(title=title, ylabel=f"{metric}, 95 % intervals")
    if metric.startswith("success"):
        axes.set_ylim(0, 1)
    axes.grid(axis="y", alpha=0.3)
    if len(groups) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the bars
    save_figure(figure, picture := out.with_suffix(".png"))
    return picture
