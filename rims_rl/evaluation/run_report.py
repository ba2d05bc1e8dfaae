"""What came out of a run, as one small JSON file and one picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import write_json
from rims_rl.common.statistics import summary
from rims_rl.config.zoo import load_saved, paper_scores
from rims_rl.evaluation.options import ReportOptions
from rims_rl.evaluation.trained_runs import read_evaluations
from rims_rl.runs.folder import read_arguments
from rims_rl.runs.monitor_files import read_episodes
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import EvaluationResult, RunResult, read_record

POINTS = 50  # of the curve


@dataclass(frozen=True)
class ReportResult:
    """Where the report is, and what is in it: ``data`` is what the file holds."""

    file: Path
    picture: Path
    data: dict[str, Any]


def report(options: ReportOptions) -> ReportResult:
    """Gather settings, curve, evaluations and speed of a run, and draw the curve with the baselines as lines."""
    run = options.run
    trained = read_record(run / "run.json", RunResult, "is it the folder of a run?")
    _, settings = read_arguments(run)
    name = settings.parent.name  # of the environment
    curve = learning_curve(run)
    if not curve:
        raise UserError(f"{run / '0.monitor.csv'} has no finished episode: there is nothing to report yet")
    evaluations = [
        {"steps": each.steps, **summary(each.scores), "episodes": len(each.scores)}
        for each in read_evaluations(run / "evaluations.npz")
    ]
    again = "evaluate again"
    others = [read_record(path, EvaluationResult, again) for path in options.baselines]
    final = run / "evaluation.json"
    played = read_record(final, EvaluationResult, again) if final.exists() else None
    config = load_saved(settings, trained.algo).model_dump()
    out = options.out or run / "report.json"
    result = {
        "what": f"One run: {trained.algo} with core {config['core']!r} on {name}, seed {trained.seed}, "
        f"{trained.steps:,} steps. curve: mean raw score of the episodes that ended in each of {POINTS} stretches of "
        "equal length, played while learning. evaluations and final: whole episodes of the policy as it was then, "
        "means with 95 % bootstrap intervals. training_seconds: wall time of the run, whatever else the machine did.",
        "run": trained.model_dump(exclude={"command"}),  # which has paths of this machine
        "config": config,
        "curve": curve,
        "evaluations": evaluations,
        "final": _short(played),
        "baselines": [_short(other) for other in others],
        "paper": paper_scores().get(name),
        "training_seconds": trained.seconds,
        **provenance(),
    }
    write_json(out, result)
    _draw(result, name, picture := out.with_suffix(".png"))
    return ReportResult(out, picture, result)


def learning_curve(run: Path) -> list[dict[str, float]]:
    """Mean score of the episodes that ended in each of ``POINTS`` stretches of training, and how many these were."""
    episodes = read_episodes([run / "0.monitor.csv"])
    scores, ends = episodes.scores, episodes.ends
    edges = np.linspace(0, ends[-1] if len(ends) else 0, POINTS + 1)
    stretch = np.minimum(np.searchsorted(edges, ends, side="left"), POINTS) - 1
    return [
        {"steps": float(edges[i + 1]), "mean": float(scores[stretch == i].mean()), "episodes": int(sum(stretch == i))}
        for i in range(POINTS)
        if (stretch == i).any()
    ]


def _short(evaluation: EvaluationResult | None) -> dict[str, Any] | None:
    keys = {"run", "episodes", "deterministic", "seed", "mean", "mean_95", "median", "std"}
    return None if evaluation is None else evaluation.model_dump(include=keys)


def _draw(result: dict[str, Any], name: str, path: Path) -> None:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    curve, evaluations = result["curve"], result["evaluations"]
    axes.plot([point["steps"] for point in curve], [point["mean"] for point in curve], label="while learning")
    if evaluations:
        means = np.array([evaluation["mean"] for evaluation in evaluations])
        errors = np.abs(np.array([evaluation["mean_95"] for evaluation in evaluations]).T - means)
        steps = [evaluation["steps"] for evaluation in evaluations]
        axes.errorbar(steps, means, errors, fmt="o", capsize=3, label=f"{evaluations[0]['episodes']} episodes, 95 %")
    for colour, baseline in zip(("tab:grey", "tab:olive", "tab:brown"), result["baselines"], strict=False):
        axes.axhspan(*baseline["mean_95"], color=colour, alpha=0.3, lw=0)
        axes.axhline(baseline["mean"], color=colour, ls="--", label=baseline["run"])
    run, config = result["run"], result["config"]
    axes.set(title=f"{name}, {run['algo']}, {config['core']}, one run, seed {run['seed']}", xlabel="agent steps")
    axes.set_ylabel("score of a game")
    axes.set_xlim(0)
    axes.set_ylim(min(0, axes.get_ylim()[0]))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3)  # below, where no curve is
    save_figure(figure, path)
