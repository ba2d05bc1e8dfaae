"""``rims-rl evaluate --variants``: frozen policies in the variants of their environment, as table, JSON and picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import write_json
from rims_rl.envs.names import resolve_saved
from rims_rl.envs.variants import choose_variants
from rims_rl.evaluation.compare import check_comparable, compare_runs
from rims_rl.evaluation.play_variants import describe_run, play_variants
from rims_rl.runs.provenance import provenance

Cell = tuple[float, Sequence[float] | None]  # a value and its interval
INTERVALS = {
    "success_95": "Wilson's score interval, over episodes",
    "return_95": "percentile bootstrap of the mean, over episodes",
    "drop_95": "of success: Newcombe's interval (method 10) for independent rates; of return: percentile bootstrap",
    "iqm_95, drop_iqm_95, probability_95": "rliable's stratified percentile bootstrap, over seeds",
}


def evaluate_variants(
    runs: Sequence[Path],
    variants: Sequence[str],
    episodes: int,
    deterministic: bool | None,
    seed: int,
    n_envs: int,
    threads: int,
    out: Path | None,
    trust: bool = False,
) -> None:
    """Play each of ``runs`` in all ``variants``; print and write what came out, and compare cores if there are several.

    All runs are looked at before the first is played, which may take long.
    """
    started = time.time()
    loaded = [(run, *load_policy(run, trust=trust)) for run in runs]
    env = resolve_saved(loaded[0][2])
    check_comparable([describe_run(*one) for one in loaded])
    out = out or (_result_path(runs[0]) if len(runs) == 1 else Path(f"{env.name}_variants.json"))
    if out.suffix != ".json":
        raise UserError(f"--out must end in .json, and a .png will be beside it; got {out}")
    count = len(choose_variants(env, variants)) * episodes * len(runs)
    with Progress(transient=True) as progress:
        bar = progress.add_task(f"{count:,} episodes of {env.name}", total=count)
        results = [
            play_variants(
                run, variants, episodes, deterministic, seed, n_envs, threads, trust, lambda: progress.advance(bar)
            )
            for run in runs
        ]
    data: dict[str, Any] = results[0] if len(runs) == 1 else {"comparison": compare_runs(results), "runs": results}
    write_json(out, {**data, "intervals": INTERVALS, **provenance(started)})
    console = Console(highlight=False)
    console.width = max(console.width, 110)  # a table that is folded cannot be read
    if len(runs) == 1:
        notes, title = data["notes"], f"{env.name}, {data['core']}, one run, {episodes} episodes each"
        _print_one(data, console)
        draw_bars({data["core"]: _cells(data)}, _metric(data), title, out)
    else:
        comparison = data["comparison"]
        notes, title = comparison["notes"], f"{env.name}, {episodes} episodes each"
        _print_comparison(comparison, results[0]["reference"], console)
        draw_bars(_cells_of_groups(comparison), f"{comparison['metric']}, interquartile mean", title, out)
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"written to {out} and {out.with_suffix('.png')}", soft_wrap=True)


def _result_path(run: Path) -> Path:
    return run / "variants.json" if run.is_dir() else run.with_suffix(".variants.json")


def _metric(result: dict[str, Any]) -> str:
    return "return" if next(iter(result["variants"].values()))["success"] is None else "success"


def _cells(result: dict[str, Any]) -> dict[str, Cell]:
    metric = _metric(result)
    return {name: (played[metric], played[f"{metric}_95"]) for name, played in result["variants"].items()}


def _cells_of_groups(comparison: dict[str, Any]) -> dict[str, dict[str, Cell]]:
    return {
        f"{label}, {len(group['seeds'])} seeds": {
            name: (played["iqm"], played["iqm_95"]) for name, played in group["variants"].items()
        }
        for label, group in comparison["groups"].items()
    }


def _print_one(result: dict[str, Any], console: Console) -> None:
    metric = _metric(result)
    actions = "most likely" if result["deterministic"] else "sampled"
    table = Table(
        title=f"{result['run']}: {result['env']['name']}, {result['core']}, {actions} actions, 95 % intervals"
    )
    columns = ["variant", metric, f"drop from {result['reference']}"]
    columns += ["wrong pick", "time-out", "return"] if metric == "success" else ["episodes"]
    for column in columns:
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, played in result["variants"].items():
        row = [name, with_interval(*_cells(result)[name]), with_interval(played["drop"], played["drop_95"])]
        if metric == "success":
            row += [with_interval(played[key]) for key in ("wrong_pick", "time_out", "return")]
        else:
            row.append(str(played["episodes"]))
        table.add_row(*row)
    console.print(table)


def _print_comparison(comparison: dict[str, Any], reference: str, console: Console) -> None:
    groups = comparison["groups"]
    table = Table(title=f"{comparison['metric']}: interquartile mean over seeds, 95 % intervals")
    table.add_column("variant")
    for label, group in groups.items():
        table.add_column(f"{label}, {len(group['seeds'])} seeds", justify="right")
    for name in next(iter(groups.values()))["variants"]:
        row = [group["variants"][name] for group in groups.values()]
        table.add_row(name, *(with_interval(one["iqm"], one["iqm_95"]) for one in row))
    console.print(table)
    if not comparison["improvement"]:
        return
    last = list(comparison["improvement"][0]["variants"])[-1]
    shown = [name for name in dict.fromkeys((reference, last)) if name in comparison["improvement"][0]["variants"]]
    table = Table("", *shown, title="probability that a seed of the first is better than one of the second")
    for pair in comparison["improvement"]:
        row = [pair["variants"][name] for name in shown]
        table.add_row(
            f"{pair['of']} over {pair['over']}",
            *(with_interval(one["probability"], one["probability_95"]) for one in row),
        )
    console.print(table)


def with_interval(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A cell of a table."""
    if value is None:
        return "-"
    digits = 2 if abs(value) < 10 else 1
    text = f"{value:.{digits}f}"
    return text if interval is None else f"{text} [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def draw_bars(groups: dict[str, dict[str, Cell]], metric: str, title: str, out: Path) -> None:
    """Names from left to right, each with one bar for each group; ``out`` with the ending ``.png``."""
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
    save_figure(figure, out.with_suffix(".png"))
