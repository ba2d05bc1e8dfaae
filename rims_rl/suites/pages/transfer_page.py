"""The page of a suite about transfer: who profits from what, as a table, a picture and a JSON file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib.figure import Figure

from rims_rl.common.figures import save_figure
from rims_rl.common.files import write_json
from rims_rl.common.markdown import table
from rims_rl.runs.provenance import provenance
from rims_rl.suites.job import AgentJob
from rims_rl.suites.pages.transfer_scores import (
    POINTS,
    VERDICTS,
    Difference,
    Measures,
    Run,
    curve_heights,
    mean_run,
    measure,
    measure_run,
)
from rims_rl.suites.plan import Plan, transfer_cells
from rims_rl.suites.results import Results

T = TypeVar("T")
ALL = "all"  # sources together
COLUMNS = 4  # of panels, at most
# Appendix E.2 of the paper; of its LSTM it does not say in how many games transfer was negative.
PAPER = {"rims": "9 positive, 3 negative", "progressive": "8 positive, 2 negative", "lstm": "3 positive"}


class Group(NamedTuple):
    """One system of the comparison."""

    algo: str
    core: str

    def __str__(self) -> str:
        return f"{self.core}, {self.algo}"


class Comparison(NamedTuple):
    sources: list[str]
    targets: list[str]
    cells: dict[tuple[str, str], Measures]  # source, or ALL, and target; those whose runs are not there are missing


def transfer_page(plan: Plan, done: Results, out: Path) -> str:
    """The page without its heading; beside ``out`` it writes ``<stem>.json`` and PNGs."""
    assert plan.suite.transfer is not None
    results = {job.hash: result for job, result in done}
    comparisons = {
        Group(algo, core): _compare(plan, Group(algo, core), results)
        for algo in plan.suite.algos
        for core in plan.suite.cores
    }
    _write_json(plan, comparisons, results, out.with_suffix(".json"))
    if not any(one.cells for one in comparisons.values()):
        return (
            f"## Verdicts\n\n{_how(plan)}\n\nThere is nothing to compare yet: no target has been learned both from "
            "scratch and with what a source gave, with episodes that ended."
        )
    matrix, curves = (out.with_name(f"{out.stem}_{name}.png") for name in ("matrix", "curves"))
    for picture, draw in ((matrix, _draw_matrix(comparisons)), (curves, _draw_curves(plan, results))):
        save_figure(draw, picture, dpi=100)
    sections = [
        f"## Verdicts\n\n{_how(plan)}\n\n{_counts(comparisons)}",
        f"## From each source\n\n![Transfer scores]({matrix.name})\n\nTransfer scores: 1 is as good as from scratch, 0 "
        "as random play; + and - mark intervals above and below 1; ? is no score, because from scratch is no better "
        "than random play; an empty cell has no runs yet, or none in which an episode ended. All numbers are in "
        f"[{out.stem}.json]({out.stem}.json).",
        *(_part(group, one) for group, one in comparisons.items() if any(source == ALL for source, _ in one.cells)),
        f"## Learning curves\n\n![Learning curves]({curves.name})\n\nScores of episodes played while learning, means "
        "over seeds. Dashed: from scratch. Grey: random play.",
    ]
    return "\n\n".join(sections)


def _compare(plan: Plan, group: Group, results: dict[str, Any]) -> Comparison:
    cells = [cell for cell in transfer_cells(plan.suite, plan.name) if (cell.algo, cell.core) == group]
    sources, targets = (
        list(dict.fromkeys(names)) for names in zip(*((c.source, c.target) for c in cells), strict=True)
    )
    found: dict[tuple[str, str], Measures] = {}
    for target in targets:
        runs: dict[str, dict[int, Run]] = {source: {} for source in sources}
        scratch: dict[int, Run] = {}
        random = math.nan
        for cell in cells:
            if cell.target != target:
                continue
            if (result := results.get(cell.scratch.hash)) and (run := measure_run(result)):
                scratch[cell.seed], random = run, result["random"]["mean"]
            if (result := results.get(cell.transfer.hash)) and (run := measure_run(result)):
                runs[cell.source][cell.seed] = run
        whole = [seed for seed in plan.suite.seeds if all(seed in of_source for of_source in runs.values())]
        pooled = {seed: mean_run([of_source[seed] for of_source in runs.values()]) for seed in whole}
        for source, of_source in [*runs.items(), (ALL, pooled)]:
            if of_source and scratch:
                found[source, target] = measure(list(of_source.values()), list(scratch.values()), random)
    return Comparison(sources, targets, found)


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _how(plan: Plan) -> str:
    assert plan.suite.transfer is not None
    return (
        f"Each agent was trained on a source for {plan.steps} steps, and then on the target for as many, next "
        f"to one that starts from scratch. Carried over: `{plan.suite.transfer.carry}`; progressive networks read "
        "frozen columns of all sources instead. The verdict on a target is about all its sources together: positive if "
        "the area under the learning curve is larger than from scratch with the whole of Welch's 95 % interval over "
        "seeds, negative if it is smaller with all of it, else neutral. In brackets: how many have a transfer score "
        "above 1, whatever the interval. The last column is what the paper counts in its 12 targets; it does not say "
        "how."
    )


def _counts(comparisons: dict[Group, Comparison]) -> str:
    rows = []
    for group, one in comparisons.items():
        verdicts = [one.cells[ALL, target] for target in one.targets if (ALL, target) in one.cells]
        if verdicts:
            above = sum(cell.score is not None and cell.score > 1 for cell in verdicts)
            numbers = [sum(cell.verdict == verdict for cell in verdicts) for verdict in VERDICTS]
            positive = f"{numbers[0]} of {len(verdicts)} ({above})"
            rows.append([group, positive, *numbers[1:], PAPER.get(group.core, "")])
    if not rows:
        return "There is no verdict yet: no target is there with all its sources."
    return table(["system", "positive", *VERDICTS[1:], "the paper, of 12"], rows)


def _part(group: Group, one: Comparison) -> str:
    rows = []
    for target in one.targets:
        if (cell := one.cells.get((ALL, target))) is not None:
            interval = "" if cell.score_95 is None else f" ({cell.score_95[0]:.2f} to {cell.score_95[1]:.2f})"
            score = f"{cell.score:.2f}{interval}" if cell.score is not None else f"none; area {_show(cell.area)}"
            seeds = " and ".join(map(str, dict.fromkeys(cell.seeds)))
            rows.append([target, cell.verdict, score, _show(cell.jump_start), _show(cell.final), seeds])
    header = ["target", "verdict", "transfer score", "jump-start", "final score", "seeds"]
    return (
        f"## {group}\n\nAll sources ({', '.join(one.sources)}) together. Jump-start, the mean over the first tenth of "
        "training, and the score of the last policy are differences to the agent from scratch. Where that is no better "
        "than random play there is no transfer score, and the difference of the areas is given instead.\n\n"
        + table(header, rows)
    )


def _show(difference: Difference) -> str:
    value, low, high = difference
    return f"{value:+.1f}" if low is None else f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _write_json(plan: Plan, comparisons: dict[Group, Comparison], results: dict[str, Any], out: Path) -> None:
    assert plan.suite.transfer is not None
    systems = []
    for group, one in comparisons.items():
        matrix = [{"source": source, "target": target, **_plain(cell)} for (source, target), cell in one.cells.items()]
        verdicts = [cell["verdict"] for cell in matrix if cell["source"] == ALL]
        counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS}
        speed = _speed(plan, group, results)
        systems.append(
            {**group._asdict(), "targets": len(verdicts), "counts": counts, "steps_per_second": speed, "matrix": matrix}
        )
    write_json(
        out,
        {
            "what": "Transfer scores, (area - random) / (area from scratch - random), by system, source and target; "
            f"source {ALL!r} is all of them together, which the verdicts and counts are about. Areas are mean scores "
            "while learning; differences are transfer minus scratch, with Welch's 95 % intervals over seeds. "
            "steps_per_second: of training on targets with transfer, whatever else the machine did.",
            "jobs": {"planned": len(plan.jobs), "in": len(results)},
            "suite": plan.suite.model_dump(exclude_defaults=True),
            "systems": systems,
            "seconds_of_jobs": round(sum(sum(result["seconds"].values()) for result in results.values()), 1),
            **provenance(),
        },
    )


def _speed(plan: Plan, group: Group, results: dict[str, Any]) -> float | None:
    cells = [cell for cell in transfer_cells(plan.suite, plan.name) if (cell.algo, cell.core) == group]
    there = [results[cell.transfer.hash] for cell in cells if cell.transfer.hash in results]
    seconds = sum(result["seconds"]["training"] for result in there)
    return round(sum(result["steps"] for result in there) / seconds, 1) if seconds else None


def _plain(cell: Measures) -> dict[str, Any]:
    return {key: value._asdict() if isinstance(value, Difference) else value for key, value in cell._asdict().items()}


def _draw_matrix(comparisons: dict[Group, Comparison]) -> Figure:
    """A row for each system and source, a column for each target."""
    rows = [
        (f"{group}: {source}", [one.cells.get((source, target)) for target in one.targets])
        for group, one in comparisons.items()
        for source in ([*one.sources, ALL] if len(one.sources) > 1 else one.sources)
    ]
    targets = next(iter(comparisons.values())).targets
    scores = np.array(
        [[math.nan if cell is None or cell.score is None else cell.score for cell in row] for _, row in rows]
    )
    figure = Figure(figsize=(3 + 0.9 * len(targets), 1.6 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(scores, cmap="RdBu", vmin=0, vmax=2, aspect="auto")
    signs = {"positive": "+", "negative": "-"}
    for y, (_, row) in enumerate(rows):
        for x, cell in enumerate(row):
            if cell is not None:
                text = "?" if cell.score is None else f"{cell.score:.2f}{signs.get(cell.verdict, '')}"
                far = cell.score is not None and abs(cell.score - 1) > 0.6
                axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if far else "black")
    axes.set_xticks(range(len(targets)), targets, rotation=30, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    figure.colorbar(image, label="transfer score", extend="both")
    return figure


def _draw_curves(plan: Plan, results: dict[str, Any]) -> Figure:
    """A panel for each system and target."""
    cells = transfer_cells(plan.suite, plan.name)
    groups, targets = (
        list(dict.fromkeys(Group(c.algo, c.core) for c in cells)),
        list(dict.fromkeys(c.target for c in cells)),
    )
    columns = min(COLUMNS, len(targets))
    rows = math.ceil(len(targets) / columns)  # of one system
    figure = Figure(figsize=(2.8 * columns + 0.4, 2 * rows * len(groups) + 0.6), layout="constrained")
    panels = figure.subplots(len(groups) * rows, columns, squeeze=False).reshape(len(groups), rows * columns)
    for y, group in enumerate(groups):
        for x, target in enumerate(targets):
            axes = panels[y, x]
            here = [cell for cell in cells if (cell.algo, cell.core, cell.target) == (*group, target)]
            for i, source in enumerate(_distinct(cell.source for cell in here)):
                jobs = [cell.transfer for cell in here if cell.source == source]
                _draw_curve(axes, results, jobs, color=f"C{i}", label=source)
            scratch = list({cell.scratch.hash: cell.scratch for cell in here}.values())
            _draw_curve(axes, results, scratch, color="black", ls="--", label="from scratch")
            for job in scratch:
                if job.hash in results:
                    axes.axhline(results[job.hash]["random"]["mean"], color="lightgrey", lw=1)
            axes.set_title(f"{target}, {group}", fontsize=8)
            axes.tick_params(labelsize=6)
            axes.grid(alpha=0.3)
            if x == 0 and axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=6)
        for axes in panels[y, len(targets) :]:
            axes.set_axis_off()
    figure.supxlabel("steps on the target", fontsize=8)
    figure.supylabel("score of an episode", fontsize=8)
    return figure


def _draw_curve(axes: Any, results: dict[str, Any], jobs: list[AgentJob], **style: Any) -> None:
    curves = [results[job.hash]["curve"] for job in jobs if job.hash in results]
    if lines := [curve_heights(curve) for curve in curves if curve]:
        axes.plot((np.arange(POINTS) + 0.5) * jobs[0].steps / POINTS, np.mean(lines, 0), lw=1, **style)
