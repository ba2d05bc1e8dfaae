"""Several trainings side by side, over seeds: learning curves, scores at equal steps, wall time."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import write_json
from rims_rl.evaluation.compare import estimate_over_seeds, interquartile_mean, probability_of_improvement
from rims_rl.evaluation.options import CompareOptions
from rims_rl.evaluation.trained_runs import TrainedRun, read_trained_run
from rims_rl.runs.provenance import provenance

POINTS = 50  # of a curve
LAST = 0.1  # of training, whose episodes make the final score
WHAT = (
    "Trainings, grouped by environment and settings; groups are compared after `steps`, the end of the shortest run of "
    "their environment. final: mean score of the episodes that ended in the last tenth before that, played while "
    "learning. evaluation: of the last evaluation before that, if all runs of a group have one. iqm: interquartile "
    "mean over seeds with its 95 % stratified bootstrap interval, which a single seed does not have. improvement: "
    "probability that a seed of the first group has a better final score than one of the second. seconds: wall time "
    "until then, whatever else the machine did. curve: interquartile means of scores in stretches of equal length."
)


@dataclass(frozen=True)
class CompareResult:
    """Where the comparison is, and what is in it: ``data`` is what the file holds."""

    file: Path
    picture: Path
    data: dict[str, Any]


def compare_training(options: CompareOptions) -> CompareResult:
    """Group runs by environment and settings, and write how they compare as JSON and picture."""
    if options.out.suffix != ".json":
        raise UserError(f"`out` must end in .json, and a .png will be beside it; got {options.out}")
    by_env: dict[str, list[TrainedRun]] = {}
    for run in map(read_trained_run, options.runs):
        by_env.setdefault(run.env, []).append(run)
    data = {
        "what": WHAT,
        "envs": {env: _compare(runs) for env, runs in by_env.items()},
        "notes": [note for runs in by_env.values() for note in _notes(runs)],
        **provenance(),
    }
    write_json(options.out, data)
    save_figure(_draw(data["envs"]), picture := options.out.with_suffix(".png"))
    return CompareResult(options.out, picture, data)


def _compare(runs: Sequence[TrainedRun]) -> dict[str, Any]:
    steps = _common_steps(runs)
    grid = np.linspace(0, max(float(run.episodes.ends[-1]) for run in runs), POINTS + 1)
    groups = _group(runs)
    finals = {label: np.array([[_final(run, steps)] for run in seeds]) for label, seeds in groups.items()}
    return {
        "steps": steps,
        "groups": {label: _describe(seeds, finals[label], steps, grid) for label, seeds in groups.items()},
        "improvement": [
            {
                "of": a,
                "over": b,
                **estimate_over_seeds([finals[a], finals[b]], probability_of_improvement, "probability")[0],
            }
            for a, b in combinations(groups, 2)
        ],
    }


def _describe(seeds: Sequence[TrainedRun], finals: np.ndarray, steps: int, grid: np.ndarray) -> dict[str, Any]:
    """One group."""
    seconds = [_seconds(run, steps) for run in seeds]
    evaluated = [_evaluation(run, steps) for run in seeds]
    curves = np.array([_heights(run, grid) for run in seeds])
    curves[:, np.isnan(curves).any(0)] = np.nan  # where a seed has ended, the mean would jump
    return {
        "core": seeds[0].who,
        "algo": seeds[0].algo,
        "runs": [str(run.path) for run in seeds],
        "seeds": [run.seed for run in seeds],
        "steps": [int(run.episodes.ends[-1]) for run in seeds],
        "final": _over_seeds(finals[:, 0].tolist()),
        "evaluation": None if None in evaluated else _over_seeds([each for each in evaluated if each is not None]),
        "seconds": seconds,
        "steps_per_second": steps / float(np.mean(seconds)) if all(seconds) else None,
        "curve": [
            {"steps": float(at), **point}
            for at, point in zip(grid[1:], estimate_over_seeds([curves], interquartile_mean, "iqm"), strict=True)
            if point["iqm"] is not None
        ],
        "settings": seeds[0].settings,
    }


def _over_seeds(values: list[float]) -> dict[str, Any]:
    return {"of_seeds": values, **estimate_over_seeds([np.array(values)[:, None]], interquartile_mean, "iqm")[0]}


def _common_steps(runs: Sequence[TrainedRun]) -> int:
    """The end of the shortest."""
    return int(min(run.episodes.ends[-1] for run in runs))


def _final(run: TrainedRun, steps: int) -> float:
    """Mean score of the last tenth before ``steps``, and of the last episode at least."""
    ends = run.episodes.ends
    last = (ends <= steps) & (ends > (1 - LAST) * steps)
    if not last.any():
        last[max(0, int(np.searchsorted(ends, steps, side="right")) - 1)] = True
    return float(run.episodes.scores[last].mean())


def _seconds(run: TrainedRun, steps: int) -> float:
    """Wall time until ``steps``."""
    return float(np.interp(steps, run.episodes.ends, run.episodes.seconds))


def _evaluation(run: TrainedRun, steps: int) -> float | None:
    """The last one until ``steps``; the episodes that say how far a run is end a little before its evaluation."""
    until = [each for each in run.evaluations if each.steps <= steps * (1 + LAST)]
    return float(until[-1].scores.mean()) if until else None


def _heights(run: TrainedRun, grid: np.ndarray) -> np.ndarray:
    """Mean score of the episodes that ended in each stretch of the grid; NaN after the end of the run."""
    ends, scores = run.episodes.ends, run.episodes.scores
    stretch = np.clip(np.searchsorted(grid, ends, side="left") - 1, 0, len(grid) - 2)
    counts = np.bincount(stretch, minlength=len(grid) - 1)
    means = np.bincount(stretch, scores, len(grid) - 1) / np.maximum(counts, 1)
    numbers, there = np.arange(len(grid) - 1), counts > 0
    heights = np.interp(numbers, numbers[there], means[there])
    heights[numbers > stretch[-1]] = np.nan
    return heights


def _group(runs: Sequence[TrainedRun]) -> dict[str, list[TrainedRun]]:
    """Runs of one environment that have the same settings, under a label that says what makes them different."""
    alike: dict[str, list[TrainedRun]] = {}
    for run in runs:
        alike.setdefault(repr((run.who, run.algo, sorted(run.settings.items()))), []).append(run)
    firsts = [group[0] for group in alike.values()]
    groups = {_label(group[0], firsts): group for group in alike.values()}
    for label, group in groups.items():
        for run, other in combinations(group, 2):
            if run.seed is not None and run.seed == other.seed:
                raise UserError(
                    f"{run.path} and {other.path} both are seed {run.seed} of {label}; each seed counts once, leave "
                    "one out"
                )
    return groups


def _label(run: TrainedRun, firsts: Sequence[TrainedRun]) -> str:
    """``rims``, with its algorithm or settings if another group has the same core."""
    parts = [run.who]
    if len({each.algo for each in firsts}) > 1 and run.algo is not None:
        parts.append(run.algo)
    others = [each for each in firsts if (each.who, each.algo) == (run.who, run.algo)]
    for key in dict.fromkeys(key for other in others for key in other.settings):
        if len({repr(other.settings.get(key)) for other in others}) > 1:
            parts.append(f"{key}={run.settings.get(key)}")
    return ", ".join(parts)


def _notes(runs: Sequence[TrainedRun]) -> list[str]:
    notes = [f"{run.path} is not finished" for run in runs if not run.finished]
    steps = _common_steps(runs)
    longest = max(int(run.episodes.ends[-1]) for run in runs)
    if steps < (1 - LAST) * longest:
        notes.append(f"{runs[0].env}: compared after {steps:,} steps, where the shortest run ends, and not {longest:,}")
    return notes


def _draw(envs: dict[str, Any]) -> Figure:
    """A panel for each environment, a line for each group."""
    labels = list(dict.fromkeys(label for one in envs.values() for label in one["groups"]))
    seeds = {label: max(len(one["groups"][label]["seeds"]) for one in envs.values() if label in one["groups"])
             for label in labels}  # fmt: skip
    columns = min(3, len(envs))
    rows, width = math.ceil(len(envs) / columns), max(7.0, 4.5 * columns)
    names = [
        textwrap.fill(f"{label}, {seeds[label]} seed{'s' if seeds[label] > 1 else ''}", int(14 * width))
        for label in labels
    ]
    lines = sum(name.count("\n") + 1 for name in names)
    figure = Figure(figsize=(width, 3.4 * rows + 0.2 * lines + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for (env, one), axes in zip(envs.items(), panels, strict=False):
        for label, group in one["groups"].items():
            curve, colour = group["curve"], f"C{labels.index(label) % 10}"
            steps, means = ([point[key] for point in curve] for key in ("steps", "iqm"))
            handles[label] = axes.plot(steps, means, color=colour, lw=1.5)[0]
            if all(point["iqm_95"] for point in curve):
                low, high = zip(*(point["iqm_95"] for point in curve), strict=True)
                axes.fill_between(steps, low, high, color=colour, alpha=0.2, lw=0)
        axes.set(title=env, xlabel="steps", ylabel="score of an episode")
        axes.axvline(one["steps"], color="0.6", lw=0.8, ls=":")
        axes.set_xlim(0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k: long numbers would run into each other
        axes.grid(alpha=0.3)
    for axes in panels[len(envs) :]:
        axes.set_axis_off()
    figure.legend([handles[label] for label in labels], names, loc="outside lower center", fontsize=9)
    return figure
