"""The page of a suite that compares mechanisms: how often each learns, how well it generalizes, and how alive it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rims_rl.common.figures import save_figure
from rims_rl.common.markdown import table
from rims_rl.suites.pages.estimates import estimate, mean
from rims_rl.suites.pages.learning_curves import draw_curves
from rims_rl.suites.pages.transfer_scores import curve_heights
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results, SupervisedResults
from rims_rl.supervised.task_names import find_task

Seeds = list[dict[str, Any]]  # the results of one core
Columns = dict[str, Callable[[Seeds], str]]

LIFE: Columns = {
    "active": lambda seeds: _mean_life(seeds, "mean_active"),
    "least used RIM": lambda seeds: _numbers([min(life["usage"]) for life in _lives(seeds)]),
    "collapse": lambda seeds: _mean_life(seeds, "collapse"),
    "switching": lambda seeds: _mean_life(seeds, "switching_rate"),
    "entropy of communication": lambda seeds: _mean_life(seeds, "communication_entropy"),
}
UPDATES: Columns = {
    "other masks": lambda seeds: _mean_update(seeds, "rims/mask_flips"),
    "first ratio": lambda seeds: _mean_update(seeds, "train/first_ratio"),
    "clipped": lambda seeds: _mean_update(seeds, "train/clip_fraction"),
}
ABOUT = (
    "Means over the seeds that are in, with 95 % bootstrap intervals where they are several; with few seeds these are "
    "rather too narrow. *Learned*: seeds whose score is at least (a loss: at most) the one in brackets. Jobs run "
    "beside others, so what a core costs in time is not here: `rims-rl bench core` measures it. Life is "
    "measured in 2,000 steps of play, or on a batch: how many RIMs are active, how often the least used one is, how "
    "unequally the work is shared (0: equally), how often RIMs switch, how evenly they listen to each other (nats), "
    "and the largest number in a state of any seed. *Alignment with rules*: 1 if each rule has a RIM that acts "
    "when, and only when, the rule is in force; 0 if activity tells nothing of it."
)
ABOUT_UPDATES = (
    "The last columns are means over PPO's updates: at what share of steps other RIMs are active than in the rollout, "
    "how far the first minibatch's ratios are from 1 at most, and what share of ratios is clipped."
)


def mechanisms_page(plan: Plan, done: Results, out: Path) -> str:
    """Two tables for each environment and algorithm, and learning curves."""
    sections = [ABOUT, *([ABOUT_UPDATES] if _have_updates([result for _, result in done]) else [])]
    for algo in plan.suite.algos:
        ours = [(job, result) for job, result in done if job.algo == algo]
        envs = [env for env in plan.suite.envs if any(job.env == env for job, _ in ours)]
        for env in envs:
            cores = {core: [r for job, r in ours if (job.env, job.core) == (env, core)] for core in plan.suite.cores}
            sections.append(f"## {env}, {algo}\n\n" + _tables(cores, _env_columns(plan, env, cores)))
        if ours:
            picture = out.with_name(f"{out.stem}_{algo}_curves.png")
            save_figure(
                draw_curves(plan, ours, list(dict.fromkeys(job.name_of_env for job, _ in ours))), picture, dpi=90
            )
            sections.append(f"## Learning curves, {algo}\n\n![Learning curves]({picture.name})\n\nMeans over seeds.")
    return "\n\n".join(sections)


def supervised_sections(plan: Plan, done: SupervisedResults) -> str:
    """Two tables for each task."""
    sections = []
    for task in plan.suite.supervised:
        ours = [(job.core_name, result) for job, result in done if job.task.name == task]
        cores = {core: [r for name, r in ours if name == core] for core in plan.suite.cores}
        if ours:
            sections.append(f"## {find_task(task).title}\n\n" + _tables(cores, _task_columns(plan, task, cores)))
    return "\n\n".join(sections)


def _tables(cores: dict[str, Seeds], columns: Columns) -> str:
    """A row for each core that has results: scores, and then, of RIMs, how alive they are."""
    there = {core: seeds for core, seeds in cores.items() if seeds}
    tables = [_table(there, {"seeds": lambda seeds: str(len(seeds)), **columns})]
    alive = {core: seeds for core, seeds in there.items() if _lives(seeds)}
    if alive:
        results = [result for seeds in alive.values() for result in seeds]
        largest = {"largest state": _largest_state} if "largest_state" in _lives(results)[0] else {}
        rules = {"alignment with rules": _alignment} if any(map(_alignments, results)) else {}
        of_updates = UPDATES if _have_updates(results) else {}
        tables.append(_table(alive, LIFE | largest | rules | of_updates))
    return "\n\n".join(tables)


def _table(cores: dict[str, Seeds], columns: Columns) -> str:
    return table(
        ["core", *columns], [[core, *(text(seeds) for text in columns.values())] for core, seeds in cores.items()]
    )


def _env_columns(plan: Plan, env: str, cores: dict[str, Seeds]) -> Columns:
    played = next(seeds for seeds in cores.values() if seeds)[0]["evaluation"]
    if "variants" not in played:
        scores: dict[str, Callable[[dict[str, Any]], float]] = {"return": lambda result: result["evaluation"]["mean"]}
    else:
        names = [played["reference"], *(name for name in played["variants"] if name != played["reference"])]
        scores = {name: lambda result, name=name: _in_variant(result, name) for name in names}  # type: ignore[misc]
    return {
        **_learned(plan, env, next(iter(scores.values())), at_least=True),
        **{name: _over_seeds(score) for name, score in scores.items()},
        "area": lambda seeds: _numbers([float(curve_heights(r["curve"]).mean()) for r in seeds if r["curve"]]),
        "parameters": lambda seeds: f"{sum(seeds[0]['parameters'].values()):,}",
    }


def _task_columns(plan: Plan, task: str, cores: dict[str, Seeds]) -> Columns:
    tests = next(seeds for seeds in cores.values() if seeds)[0]["tests"]
    measures = list(next(iter(tests.values())))
    bounded = next((name for name in measures if name in find_task(task).bounded), None)
    measure = bounded or measures[0]

    def score_of(test: str) -> Callable[[dict[str, Any]], float]:
        return lambda result: np.nan if (value := result["tests"][test][measure]) is None else value

    return {
        **_learned(plan, task, score_of(next(iter(tests))), at_least=bounded is not None),
        **{f"{measure}, {test}": _over_seeds(score_of(test)) for test in tests},
        "parameters": lambda seeds: f"{seeds[0]['parameters']['all']:,}",
    }


def _learned(plan: Plan, name: str, score: Callable[[dict[str, Any]], float], at_least: bool) -> Columns:
    """How many seeds did, if the suite says what that is."""
    if name not in plan.suite.solved:
        return {}
    bound = plan.suite.solved[name]

    def count(seeds: Seeds) -> str:
        scores = [score(result) for result in seeds]
        return f"{sum(each >= bound if at_least else each <= bound for each in scores)} of {len(seeds)}"

    return {f"learned ({bound:g})": count}


def _in_variant(result: dict[str, Any], name: str) -> float:
    variant = result["evaluation"]["variants"][name]
    return float(variant["return"] if variant["success"] is None else variant["success"])


def _over_seeds(score: Callable[[dict[str, Any]], float]) -> Callable[[Seeds], str]:
    return lambda seeds: _numbers([score(result) for result in seeds])


def _lives(seeds: Seeds) -> list[dict[str, Any]]:
    return [life for result in seeds if (life := result.get("life"))]


def _mean_life(seeds: Seeds, measure: str) -> str:
    return _numbers([life[measure] for life in _lives(seeds)])


def _have_updates(results: Seeds) -> bool:
    """Results of earlier versions say nothing of them."""
    return all("updates" in result for result in results)


def _mean_update(seeds: Seeds, metric: str) -> str:
    return _numbers([result["updates"][metric] for result in seeds if metric in result["updates"]])


def _alignments(result: dict[str, Any]) -> list[float]:
    """Of tasks that say what rule is in force: measured at the end of training."""
    return [watched["alignment"] for watched in result.get("on_the_way", [])[-1:] if "alignment" in watched]


def _alignment(seeds: Seeds) -> str:
    return _numbers([value for result in seeds for value in _alignments(result)])


def _largest_state(seeds: Seeds) -> str:
    return f"{max(life['largest_state'] for life in _lives(seeds)):.3g}"


def _numbers(values: Sequence[float]) -> str:
    finite = [value for value in values if np.isfinite(value)]
    return str(estimate(mean, np.array(finite)[:, None])) if finite else ""
