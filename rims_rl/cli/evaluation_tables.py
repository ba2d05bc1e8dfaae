"""What ``rims-rl evaluate``, ``compare`` and ``report`` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rims_rl.common.words import count_of, decimals, mean_in_words
from rims_rl.evaluation.compare_training import CompareResult
from rims_rl.evaluation.evaluate_drop import DropEachResult
from rims_rl.evaluation.evaluate_variants import VariantsResult, cells_of, metric_of
from rims_rl.evaluation.run_report import ReportResult
from rims_rl.runs.records import EvaluationResult


def print_evaluation(result: EvaluationResult) -> None:
    actions = "random" if result.run == "random" else "most likely" if result.deterministic else "sampled"
    changes = (("without RIM", result.drop), ("RIM always active:", result.force))
    changed = "".join(f", {text} {', '.join(map(str, rims))}" for text, rims in changes if rims)
    Console(highlight=False).print(
        f"{result.env['name']}: {mean_in_words(result.mean, result.mean_95, result.median)}, over "
        f"{count_of(result.episodes, 'episode')}, {actions} actions{changed}\nwritten to {result.file}"
    )


def print_each_drop(result: DropEachResult) -> None:
    metric = result.metric
    table = Table("RIM taken out", f"{metric}, 95 %", "loss, 95 %", title=result.title)
    for name, one in result.removed.items():
        table.add_row(name, with_interval(one[metric], one[f"{metric}_95"]), with_interval(one["loss"], one["loss_95"]))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"written to {result.file} and {result.picture}", soft_wrap=True)


def print_variants(result: VariantsResult) -> None:
    console = _wide_console()
    if result.comparison is None:
        _print_one(result.runs[0], console)
    else:
        _print_comparison(result.comparison, result.runs[0]["reference"], console)
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"written to {result.file} and {result.picture}", soft_wrap=True)


def print_report(result: ReportResult) -> None:
    console, data = Console(highlight=False), result.data
    for name, one in (("final policy", data["final"]), *((other["run"], other) for other in data["baselines"])):
        if one is not None:
            console.print(f"{name}: {mean_in_words(one['mean'], one['mean_95'])}")
    console.print(f"written to {result.file} and {result.picture}", soft_wrap=True)


def print_training_comparison(result: CompareResult) -> None:
    console = _wide_console()
    for env, one in result.data["envs"].items():
        groups = one["groups"]
        table = Table(title=f"{env} after {one['steps']:,} steps; interquartile means over seeds, 95 % intervals")
        evaluated = any(group["evaluation"] for group in groups.values())
        table.add_column("core")
        for column in ("seeds", "score", *(["evaluation"] if evaluated else []), "minutes", "steps/s"):
            table.add_column(column, justify="right")
        for label, group in groups.items():
            scores = [group["final"], *([group["evaluation"]] if evaluated else [])]
            minutes, speed = sum(group["seconds"]) / len(group["seconds"]) / 60, group["steps_per_second"]
            table.add_row(
                label,
                str(len(group["seeds"])),
                *("-" if score is None else with_interval(score["iqm"], score["iqm_95"]) for score in scores),
                f"{minutes:,.1f}",
                "-" if speed is None else f"{speed:,.0f}",
            )
        console.print(table)
        for pair in one["improvement"]:
            if pair["probability_95"] is not None:
                chance = with_interval(pair["probability"], pair["probability_95"])
                console.print(f"probability that a seed of {pair['of']} beats one of {pair['over']}: {chance}")
    for note in result.data["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"written to {result.file} and {result.picture}", soft_wrap=True)


def _wide_console() -> Console:
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 110)  # a table that is folded cannot be read
    return console


def _print_one(result: dict[str, Any], console: Console) -> None:
    metric = metric_of(result)
    actions = "most likely" if result["deterministic"] else "sampled"
    table = Table(
        title=f"{result['run']}: {result['env']['name']}, {result['core']}, {actions} actions, 95 % intervals"
    )
    columns = ["variant", metric, f"drop from {result['reference']}"]
    first = next(iter(result["variants"].values()))
    endings = [key for key in ("wrong_pick", "time_out") if first[key] is not None]
    names = {"wrong_pick": "wrong pick", "time_out": "time-out"}
    columns += [*(names[key] for key in endings), "return"] if metric == "success" else ["episodes"]
    for column in columns:
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, played in result["variants"].items():
        row = [name, with_interval(*cells_of(result)[name]), with_interval(played["drop"], played["drop_95"])]
        if metric == "success":
            row += [with_interval(played[key]) for key in (*endings, "return")]
        else:
            row.append(str(played["episodes"]))
        table.add_row(*row)
    console.print(table)


def _print_comparison(comparison: dict[str, Any], reference: str, console: Console) -> None:
    groups = comparison["groups"]
    table = Table(title=f"{comparison['metric']}: interquartile mean over seeds, 95 % intervals")
    table.add_column("variant")
    for label, group in groups.items():
        table.add_column(f"{label}, {count_of(len(group['seeds']), 'seed')}", justify="right")
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
    digits = decimals(value)
    text = f"{value:.{digits}f}"
    return text if interval is None else f"{text} [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
