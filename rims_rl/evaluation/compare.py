"""Several runs, each played in the same variants: which core does better, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from rims_rl.common.errors import UserError
from rims_rl.common.statistics import stratified_interval
from rims_rl.envs.variants import CONTROLS, is_novel

NOVEL = "novel (mean)"  # the mean of a run over its novel variants, as if it were one more


def compare_runs(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Groups of runs with one core and algorithm, and how they compare; ``results`` are of ``play_variants``.

    Each seed counts as one number, so intervals say what other seeds might have given. A run is one policy in all
    variants: its mean over the novel ones is taken first, since its scores in them are not independent.
    ``novelty_cost``, if controls were played, is what a run loses by novelty alone: its score in a control minus that
    in the novel variant, the mean over all such pairs.
    """
    check_comparable(results)
    variants = list(results[0]["variants"])
    metric = "return" if results[0]["variants"][variants[0]]["success"] is None else "success"
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(_label(result, results), []).append(result)
    novel = [name for name in variants if is_novel(name)]
    names = [*variants, *([NOVEL] if len(novel) > 1 else [])]
    scores = {label: _table(runs, metric, names, novel) for label, runs in groups.items()}
    drops = {label: _table(runs, "drop", names, novel) for label, runs in groups.items()}
    described = {
        label: {
            "core": runs[0]["core"],
            "algo": runs[0]["algo"],
            "parameters": runs[0]["parameters"],
            "seeds": [run["seed"] for run in runs],
            "steps": [run["steps"] for run in runs],
            "variants": _join(
                names,
                estimate_over_seeds([scores[label]], interquartile_mean, "iqm"),
                estimate_over_seeds([drops[label]], interquartile_mean, "drop_iqm"),
            ),
        }
        for label, runs in groups.items()
    }
    improvements: list[dict[str, Any]] = [
        {
            "of": a,
            "over": b,
            "variants": _join(
                names, estimate_over_seeds([scores[a], scores[b]], probability_of_improvement, "probability")
            ),
        }
        for a, b in combinations(groups, 2)
    ]
    if matched := {name: control for name, control in CONTROLS.items() if {name, control} <= set(variants)}:
        costs = {label: _costs(runs, metric, matched) for label, runs in groups.items()}
        for label, group in described.items():
            group["novelty_cost"] = estimate_over_seeds([costs[label]], interquartile_mean, "iqm")[0]
        for pair in improvements:
            less = [-costs[pair["of"]], -costs[pair["over"]]]
            pair["novelty_cost"] = estimate_over_seeds(less, probability_of_improvement, "probability")[0]
    return {"metric": metric, "groups": described, "improvement": improvements, "notes": _notes(results)}


def check_comparable(runs: Sequence[dict[str, Any]]) -> None:
    """A UserError if runs were trained on different environments, or if a group of them mixes what must be apart."""
    first = runs[0]
    for run in runs[1:]:
        if (key := _difference(first["env"], run["env"])) is not None:
            raise UserError(
                f"runs that are compared must be of one environment, but {key} is {first['env'].get(key)!r} in "
                f"{first['run']} and {run['env'].get(key)!r} in {run['run']}"
            )
    for i, run in enumerate(runs):
        for other in runs[:i]:
            if (run["core"], run["algo"]) != (other["core"], other["algo"]):
                continue
            group = f"core {run['core']} and algorithm {run['algo']}"
            if (key := _difference(other["policy_kwargs"], run["policy_kwargs"])) is not None:
                raise UserError(
                    f"{other['run']} and {run['run']} both have {group}, but {key} is "
                    f"{other['policy_kwargs'].get(key)!r} in one and {run['policy_kwargs'].get(key)!r} in the other; "
                    "evaluate them apart"
                )
            if run["seed"] is not None and run["seed"] == other["seed"]:
                raise UserError(
                    f"{other['run']} and {run['run']} both are seed {run['seed']} of {group}; each seed counts once, "
                    "leave one out"
                )


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """(seeds, variants) -> (variants,), the mean of the middle half of the seeds.

    This and the next are what rliable.metrics has for one variant, for all at once.
    """
    cut = len(scores) // 4
    return np.sort(scores, axis=0)[cut : len(scores) - cut].mean(0)


def probability_of_improvement(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(seeds, variants) twice -> (variants,), how often a seed of ``a`` beats one of ``b``; a draw counts half."""
    pairs = a[:, None] - b[None]  # (seeds of a, seeds of b, variants)
    return ((pairs > 0) + 0.5 * (pairs == 0)).mean((0, 1))


def estimate_over_seeds(
    tables: list[np.ndarray], function: Callable[..., np.ndarray], name: str
) -> list[dict[str, Any]]:
    """One entry for each variant, with its stratified bootstrap interval; a single seed has none."""
    there = ~np.isnan(tables[0][0])
    given = [table[:, there] for table in tables]
    values = np.full((3, len(there)), np.nan)
    values[0, there] = function(*given)
    if min(len(table) for table in tables) > 1 and there.any():
        values[1:, there] = stratified_interval(function, *given)
    return [
        {name: _number(value), f"{name}_95": None if np.isnan(low) else [_number(low), _number(high)]}
        for value, low, high in values.T
    ]


def _table(runs: list[dict[str, Any]], key: str, names: list[str], novel: list[str]) -> np.ndarray:
    """(seeds, variants); NaN where there is no number, as the drop of the variant that others are compared with."""

    def value(run: dict[str, Any], name: str) -> float:
        of = novel if name == NOVEL else [name]
        return float(np.mean([np.nan if (x := run["variants"][each][key]) is None else x for each in of]))

    return np.array([[value(run, name) for name in names] for run in runs])


def _costs(runs: list[dict[str, Any]], metric: str, matched: dict[str, str]) -> np.ndarray:
    """(seeds, 1)"""
    score = [{name: played[metric] for name, played in run["variants"].items()} for run in runs]
    return np.array([[np.mean([of[control] - of[name] for name, control in matched.items()])] for of in score])


def _join(names: list[str], *columns: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {k: v for part in parts for k, v in part.items()} for name, *parts in zip(names, *columns, strict=True)
    }


def _label(run: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    one_algorithm = len({each["algo"] for each in runs}) == 1
    return str(run["core"]) if one_algorithm else f"{run['core']}, {run['algo']}"


def _difference(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """The first key in which two settings differ."""
    return next((key for key in {**a, **b} if a.get(key) != b.get(key)), None)


def _notes(results: Sequence[dict[str, Any]]) -> list[str]:
    said = [note for result in results for note in result["notes"]]
    notes = list({note.partition(": ")[0]: note for note in said}.values())  # versions word them differently
    steps = [result["steps"] for result in results if result["steps"] is not None]
    if len(set(steps)) > 1:
        notes.append(f"runs were trained for different numbers of steps, from {min(steps):,} to {max(steps):,}")
    return notes


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
