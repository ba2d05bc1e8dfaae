"""The pictures of a task's page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rims_rl.supervised.task import Task
from rims_rl.supervised.training import DIVERGED, diverged
from rims_rl.supervised.translation_page import draw_attention

Group = list[dict[str, Any]]  # the results of the seeds of one setting


def figures(task: type[Task], groups: dict[str, Group]) -> dict[str, Figure]:
    """By name, those that there is something recorded for."""
    drawn = {"learning": _learning(task, groups)}
    draw: dict[str, tuple[str, Callable[[dict[str, dict[str, Any]]], Figure]]] = {
        "activation": ("active", _activation), "per_frame": ("per_frame", _per_frame), "film": ("film", _film),
        "attention": ("attention", draw_attention),
    }  # fmt: skip
    for name, (key, function) in draw.items():
        recorded = {label: record for label, group in groups.items() if key in (record := shown(group))}
        if recorded:
            drawn[name] = function(recorded)
    watched = {label: group[0]["on_the_way"] for label, group in groups.items() if group[0]["on_the_way"]}
    watched = {label: points for label, points in watched.items() if "correlation" in points[0]}
    return drawn | ({"correlation": _correlation(watched)} if watched else {})


def shown(group: Group) -> dict[str, Any]:
    """What was recorded of the first seed that did not diverge."""
    return next((result["record"] for result in group if not diverged(result["curve"])), {})


def value(result: dict[str, Any], test: str, measure: str) -> float:
    return _number(result["tests"][test][measure])


def _number(read: float | None) -> float:
    """What was not finite is null in a file."""
    return math.inf if read is None else read


def highest(groups: Iterable[Group]) -> float:
    """Ten times the usual loss at the beginning of training, as a round number: above it, all is equally bad."""
    first = [_number(result["curve"][0][1]) for group in groups for result in group if result["curve"]]
    return float(f"{DIVERGED * np.median(first):.0e}") if first else math.inf


CAPTIONS = {
    "learning": "Over training, one line for each seed: the loss of training (mean of 100 iterations), and the tests. "
    "A seed that leaves the picture ends there, with a cross.",
    "activation": "Who is active (dark) at each step of one new sequence, in the first seed that did not diverge; "
    "below, what goes in, or the frame. In brackets, if RIMs have strips of their own: correlation with how much of "
    "the balls is in the strip.",
    "per_frame": "Cross entropy of each frame, in the first seed that did not diverge; right of the line the network "
    "sees its own frames.",
    "film": "Frames of one clip, in the first seed that did not diverge; a blue frame is one before which the network "
    "saw its own.",
    "attention": "Translations of the same sentences, in the first seed that did not diverge: the decoder's attention "
    "to each piece of the sentence (▁ begins a word) while it says each of its own. Of RIMs also what each of the "
    "encoder's read of every piece (yellow: all of its attention was on the piece, dark: on null, white: it was not "
    "active), and which of the decoder's were active at every piece they said.",
    "correlation": "Correlation of each RIM's activity with how much of the balls is in its strip, over training, in "
    "the first seed.",
}


def _learning(task: type[Task], groups: dict[str, Group]) -> Figure:
    tests = list(dict.fromkeys(test for group in groups.values() for test in group[0]["tests"]))
    measure = next(iter(next(iter(groups.values()))[0]["tests"][tests[0]]))
    names = ["loss of training", *tests]
    figure = Figure(figsize=(3.2 * len(names), 3.2), layout="constrained")
    panels = dict(zip(names, figure.subplots(1, len(names), squeeze=False)[0], strict=True))
    for number, label in enumerate(groups):
        panels[names[0]].plot([], [], color=f"C{number % 10}", label=label)
    for name, axes in panels.items():
        lines = [
            (f"C{number % 10}", _line(result, name, measure))
            for number, group in enumerate(groups.values())
            for result in group
            if name in ("loss of training", *result["tests"])
        ]
        _draw(axes, lines, highest(groups.values()), task.bounded.get(measure) if name in tests else None)
        axes.set_title(f"{name}: {measure}" if name in tests else name, fontsize=8)
        axes.set_xlabel("iterations", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.legend(*panels[names[0]].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7)
    return figure


def _line(result: dict[str, Any], name: str, measure: str) -> np.ndarray:
    """Iterations and values, (points, 2)."""
    if name not in result["tests"]:
        points = dict(result["curve"])
    else:  # the test at the end has more sequences than one on the way at the same time
        points = {point["iteration"]: point["tests"][name][measure] for point in result["on_the_way"]}
        points[result["iterations"]] = result["tests"][name][measure]
    return np.array([(time, _number(read)) for time, read in points.items()]).reshape(-1, 2)


def _draw(axes: Axes, lines: list[tuple[str, np.ndarray]], top: float, bound: float | None) -> None:
    """``top``: where to cut at the latest, but for a measure between 0 and ``bound``."""
    if bound is not None:
        axes.set_ylim(0, 1.02 * bound)
        top = math.inf
    else:
        inside = np.concatenate([line[:, 1] for _, line in lines])
        inside = inside[np.isfinite(inside) & (inside > 0) & (inside <= top)]
        if len(inside):
            top = min(top, 1.3 * inside.max())
            axes.set_ylim(top=top)
            if inside.max() > 10 * inside.min():
                axes.set_yscale("log")
                axes.set_ylim(0.8 * inside.min(), top)
    for color, line in lines:
        gone = np.flatnonzero(line[:, 1] > top)
        drawn = line[: gone[0] + 1] if len(gone) else line
        axes.plot(drawn[:, 0], np.minimum(drawn[:, 1], top), color=color, lw=1)
        if len(gone):
            axes.plot(drawn[-1, 0], top, "x", color=color, clip_on=False)


def _activation(recorded: dict[str, dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(9, 1.8 * len(recorded)), layout="constrained")
    for axes, (label, record) in zip(
        figure.subplots(len(recorded), squeeze=False)[:, 0], recorded.items(), strict=True
    ):
        active = np.array([[step == "1" for step in rim] for rim in record["active"]])  # (K, T)
        axes.pcolormesh(active, cmap="Greys", vmin=-0.1, vmax=1.1)
        axes.set_title(label, fontsize=8)
        names = [f"RIM {k}" for k in range(len(active))]
        if "correlation" in record:
            names = [f"{name} ({with_own:+.2f})" for name, with_own in zip(names, record["correlation"], strict=True)]
        axes.set_yticks(np.arange(len(active)) + 0.5, names, fontsize=7)
        axes.set_xticks(np.arange(active.shape[1]) + 0.5, [str(x or "·") for x in record["input"]], fontsize=5)
        axes.invert_yaxis()
        axes.tick_params(length=0)
    return figure


def _correlation(watched: dict[str, list[dict[str, Any]]]) -> Figure:
    figure = Figure(figsize=(3.6 * len(watched), 3.4), layout="constrained")
    for axes, (label, points) in zip(figure.subplots(1, len(watched), squeeze=False)[0], watched.items(), strict=True):
        lines = axes.plot([point["iteration"] for point in points], [point["correlation"] for point in points], lw=1)
        axes.legend(lines, [f"RIM {k}" for k in range(len(lines))], fontsize=6)
        axes.set_title(label, fontsize=8, wrap=True)
        axes.set_xlabel("iterations", fontsize=8)
        axes.tick_params(labelsize=7)
    return figure


def _per_frame(recorded: dict[str, dict[str, Any]]) -> Figure:
    tests = list(dict.fromkeys(test for record in recorded.values() for test in record["per_frame"]))
    figure = Figure(figsize=(3.6 * len(tests), 3.4), layout="constrained")
    panels = figure.subplots(1, len(tests), squeeze=False)[0]
    for axes, test in zip(panels, tests, strict=True):
        for label, record in recorded.items():
            losses = record["per_frame"].get(test, [])
            axes.plot(range(1, len(losses) + 1), losses, label=label, lw=1)
        axes.axvline(record["fed"] + 0.5, color="grey", lw=1)
        axes.set_title(test, fontsize=8)
        axes.set_xlabel("frame", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7)
    return figure


def _film(recorded: dict[str, dict[str, Any]]) -> Figure:
    """One film for each setting, with one row for each way to roll out."""
    rows = [len(record["film"]) for record in recorded.values()]
    longest = max(len(row) for record in recorded.values() for row in record["film"].values())
    figure = Figure(figsize=(1.1 * longest + 1, 1.15 * sum(rows) + 0.4 * len(rows)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    for part, (label, record) in zip(parts, recorded.items(), strict=True):
        part.suptitle(label, fontsize=9)
        panels = part.subplots(len(record["film"]), longest, squeeze=False)
        for line, (name, row) in zip(panels, record["film"].items(), strict=True):
            for number, (axes, frame) in enumerate(zip(line, row, strict=True)):
                side = int(len(frame) ** 0.5)
                shades = np.array([int(shade, 16) for shade in frame]).reshape(side, side)
                axes.imshow(shades, cmap="gray", vmin=0, vmax=15)
                axes.set(xticks=[], yticks=[])
                time = 1 + number * record["every"]
                axes.spines[:].set_color("tab:green" if time <= record["fed"] else "tab:blue")
                if name == next(iter(record["film"])):
                    axes.set_title(f"{time}", fontsize=7)
            line[0].set_ylabel(name, fontsize=7)
    return figure
