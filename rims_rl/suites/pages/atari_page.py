"""The page of a suite of Atari games: scores beside the paper's, human-normalized, and RIMs against the LSTM; what
distractors and a missing RIM cost; and what it all took."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rims_rl.common.figures import save_figure
from rims_rl.common.markdown import table
from rims_rl.config.zoo import human_scores, paper_scores
from rims_rl.core.registry import has_rims
from rims_rl.suites.pages.atari_costs import costs_section
from rims_rl.suites.pages.atari_distractors import distractors_section
from rims_rl.suites.pages.atari_rims import usage_section, without_section
from rims_rl.suites.pages.estimates import estimate, interquartile_mean, probability_of_improvement
from rims_rl.suites.pages.learning_curves import draw_curves
from rims_rl.suites.pages.transfer_scores import curve_heights
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results

Scores = dict[str, dict[str, dict[int, float]]]  # core -> game -> seed -> the mean score of its policy
BASELINE = "lstm"
IN_PAPER = {
    True: "The paper does not say by what its figure divides; its own numbers (5 active RIMs) are put through the same "
    "formula.",
    False: "The paper's table has no numbers of such RIMs.",
}


def atari_page(plan: Plan, done: Results, out: Path) -> str:
    """One part for each algorithm."""
    parts = []
    for algo in plan.suite.algos:
        if ours := [(job, result) for job, result in done if job.algo == algo]:
            stem = out.stem if len(plan.suite.algos) == 1 else f"{out.stem}_{algo}"
            parts.append(_part(plan, ours, algo, out.with_name(stem)))
    return "\n\n".join(parts)


def _part(plan: Plan, done: Results, algo: str, stem: Path) -> str:
    scores, areas = _by_core(plan, done, _score), _by_core(plan, done, _area)
    games = [
        game for game in dict.fromkeys(job.name_of_env for job in plan.jobs) if any(game in s for s in scores.values())
    ]
    curves = stem.with_name(f"{stem.name}_curves.png")
    save_figure(draw_curves(plan, done, games), curves, dpi=90)
    sections = {
        "Scores": f"{_how(plan, done[0][0].steps)}\n\n{_score_table(scores, games)}",
        "Human-normalized scores": _normalized(scores, games),
        "Learning curves": f"![Learning curves]({curves.name})\n\nScores of games played while learning, means over "
        "seeds.",
        "Areas under the learning curves": _area_table(areas, games),
        **_improvements(done, scores, stem),
        "What distractors cost": distractors_section(done),
        "What each RIM is worth": without_section(done),
        "Usage of RIMs": usage_section(done),
        "What it took": costs_section(done),
    }
    return "\n\n".join(f"## {title}, {algo}\n\n{text}" for title, text in sections.items() if text)


def _by_core(plan: Plan, done: Results, value: Callable[[dict[str, Any]], float | None]) -> Scores:
    """What ``value`` makes of each result, where it makes something of it."""
    scores: Scores = {core: {} for core in plan.suite.cores}
    for job, result in done:
        if (number := value(result)) is not None:
            scores[job.core].setdefault(job.name_of_env, {})[job.seed] = number
    return {core: games for core, games in scores.items() if games}


def _score(result: dict[str, Any]) -> float:
    """In the variant that the policy was trained in, if it was played in several."""
    played = result["evaluation"]
    return float(played["variants"][played["reference"]]["return"] if "variants" in played else played["mean"])


def _area(result: dict[str, Any]) -> float | None:
    return float(curve_heights(result["curve"]).mean()) if result["curve"] else None


def _improvements(done: Results, scores: Scores, stem: Path) -> dict[str, str]:
    """The paper's figure of bars, for each core with RIMs."""
    sections = {}
    for core, config in {job.core: result["definition"]["config"] for job, result in done}.items():
        if not has_rims(config["core"]) or not (changes := _relative_improvements(scores, core)):
            continue
        in_paper = config["core"] == "rims" and config["core_kwargs"].get("input_attention", True)
        picture = stem.with_name(f"{stem.name}_{core}_over_{BASELINE}.png")
        save_figure(_draw_bars(changes, core, in_paper), picture)
        better = sum(change > 0 for change in changes.values())
        sections[f"{core} over {BASELINE}"] = (
            f"![{core} over {BASELINE}]({picture.name})\n\nPer game, the difference of the mean scores divided by "
            f"what the better of {BASELINE} and human scores above random play. {core} has the higher mean score in "
            f"{better} of {len(changes)} games. {IN_PAPER[in_paper]}"
        )
    return sections


def _how(plan: Plan, steps: int) -> str:
    return (
        f"Mean score over {plan.suite.evaluation.episodes} whole games of the last policy, after {steps:,} "
        "steps (4 frames each); mean over the seeds that are in, and in brackets the lowest and the highest seed. "
        "The last columns are the paper's (40,000,000 steps, 5 active RIMs, 3 trials)."
    )


def _score_table(scores: Scores, games: list[str]) -> str:
    paper = paper_scores()
    rows = []
    for game in games:
        ours = [_spread(list(of_core.get(game, {}).values())) for of_core in scores.values()]
        theirs = [f"{paper[game][key]:,.0f}" if game in paper else "" for key in ("rims", "lstm")]
        rows.append([game, *ours, *theirs])
    return table(["game", *scores, "paper: RIMs", "paper: LSTM"], rows)


def _area_table(areas: Scores, games: list[str]) -> str | None:
    """None if no game has ended in training."""
    if not areas:
        return None
    rows = [[game, *(_spread(list(of_core.get(game, {}).values())) for of_core in areas.values())] for game in games]
    return (
        "Mean score of the games played while learning, all of training counted alike: how early a core learns, and "
        f"not only how far. Means over seeds as above.\n\n{table(['game', *areas], rows)}"
    )


def _spread(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:,.1f}" if values else ""
    return f"{np.mean(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def _normalized(scores: Scores, games: list[str]) -> str:
    human = human_scores()
    known = [game for game in games if game in human]
    if not known:
        return "There are no scores of a human tester for these games."
    normal = {
        core: {
            game: {seed: _normalize(score, human[game]) for seed, score in of_core.get(game, {}).items()}
            for game in known
        }
        for core, of_core in scores.items()
    }
    means = [[game, *(f"{_mean(x[game]):.2f}" if x[game] else "" for x in normal.values())] for game in known]
    text = "0 is random play, 1 a human tester. Means over the seeds that are in:\n\n" + table(["game", *normal], means)
    whole, seeds = _in_all(normal, known)
    if not whole:
        return f"{text}\n\nNo game is there yet with the same seed for all cores, so that there is no mean over games."
    matrices = {
        core: np.array([[of_core[game][seed] for game in whole] for seed in seeds]) for core, of_core in normal.items()
    }
    rows = [[core, estimate(interquartile_mean, matrix)] for core, matrix in matrices.items()]
    text += (
        f"\n\nInterquartile mean over what is there for all cores, {len(whole)} of {len(known)} games (seeds: "
        f"{', '.join(map(str, seeds))}), with 95 % bootstrap intervals stratified by game where seeds are several:\n\n"
        + table(["core", "interquartile mean"], rows)
    )
    if BASELINE in matrices:
        rows = [
            [core, estimate(probability_of_improvement, matrix, matrices[BASELINE])]
            for core, matrix in matrices.items()
            if core != BASELINE
        ]
        text += (
            f"\n\nProbability that a run scores higher than one of `{BASELINE}`, averaged over these games, with 95 % "
            "bootstrap intervals:\n\n" + table(["core", f"over {BASELINE}"], rows)
        )
    return text


def _in_all(scores: Scores, games: list[str]) -> tuple[list[str], list[int]]:
    """Games and seeds that every core has: anything else would compare different games. Of all such choices, the one
    with most runs."""
    common = {game: set.intersection(*(set(of_core[game]) for of_core in scores.values())) for game in games}
    seeds = max(common.values(), key=lambda seeds: len(seeds) * sum(seeds <= other for other in common.values()))
    return [game for game in games if seeds and seeds <= common[game]], sorted(seeds)


def _mean(seeds: dict[int, float]) -> float:
    return float(np.mean(list(seeds.values())))


def _normalize(score: float, reference: dict[str, float]) -> float:
    return (score - reference["random"]) / (reference["human"] - reference["random"])


def _relative_improvements(scores: Scores, core: str) -> dict[str, float]:
    human, baseline = human_scores(), scores.get(BASELINE, {})
    return {
        game: _relative(_mean(seeds), _mean(baseline[game]), human[game])
        for game, seeds in scores[core].items()
        if game in baseline and game in human
    }


def _relative(score: float, baseline: float, reference: dict[str, float]) -> float:
    """A game in which nobody is better than random play has no scale of its own: the human's is positive."""
    return (score - baseline) / (max(baseline, reference["human"]) - reference["random"])


def _draw_bars(changes: dict[str, float], core: str, in_paper: bool) -> Figure:
    """Games in order of the improvement, ours and the paper's, if it is the same core."""
    paper, human = paper_scores(), human_scores()
    games = sorted(changes, key=lambda game: changes[game])
    theirs = [
        _relative(paper[game]["rims"], paper[game]["lstm"], human[game]) if game in paper else math.nan
        for game in games
    ]
    figure = Figure(figsize=(8, 1.2 + 0.26 * len(games)), layout="constrained")
    axes = figure.subplots()
    rows = np.arange(len(games))
    axes.barh(rows + 0.2, [100 * changes[game] for game in games], 0.4, label=f"{core}, here")
    if in_paper:
        axes.barh(rows - 0.2, [100 * value for value in theirs], 0.4, color="lightgrey", label="the paper's numbers")
    axes.set_xscale("symlog", linthresh=10)
    axes.set_yticks(rows, games, fontsize=7)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_xlabel(f"improvement over {BASELINE} in % (linear up to 10, logarithmic beyond)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)
    return figure
