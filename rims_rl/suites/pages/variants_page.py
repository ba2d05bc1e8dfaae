"""The page of a suite whose policies are played in variants of their environment, such as novel distractors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rims_rl.common.figures import save_figure
from rims_rl.common.markdown import table
from rims_rl.evaluation.compare import NOVEL, compare_runs
from rims_rl.suites.pages.estimates import Estimate
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results

Groups = dict[str, list[dict[str, Any]]]  # core -> the results of its seeds


def variants_page(plan: Plan, done: Results, out: Path) -> str:
    """What was found, in words; success over training, success and drop in each variant, probability of improvement and
    parameter counts."""
    groups = {(env, algo): _of(done, env, algo) for env in _envs(done) for algo in plan.suite.algos}
    groups = {key: cores for key, cores in groups.items() if cores}
    compared = {
        key: compare_runs([_as_played(core, result) for core, results in cores.items() for result in results])
        for key, cores in groups.items()
    }
    sections = ["## What was found"]
    for (env, algo), cores in groups.items():
        reference = next(iter(cores.values()))[0]["evaluation"]["reference"]
        sections.append(f"{env}, {algo}:\n\n" + "\n".join(_findings(compared[env, algo], cores, reference)))
    if any(each["improvement"] for each in compared.values()):
        sections.append(
            "With few seeds bootstrap intervals are rather too narrow, and several pairs are compared: an interval "
            "that only just leaves out 0.5 is weak evidence. And who has learned less has less to lose: costs say "
            "something of two memories only where they do about as well in what they were trained on."
        )
    if plan.suite.curve:
        picture = out.with_name(f"{out.stem}_curves.png")
        save_figure(_draw(plan, groups), picture)
        sections.append(
            f"## Over training\n\n![Over training]({picture.name})\n\nLines are means over seeds, bands reach from the "
            f"lowest to the highest seed. Policies on the way are played for {plan.suite.curve.episodes} episodes, the "
            f"last one for {plan.suite.evaluation.episodes}."
        )
    for (env, algo), cores in groups.items():
        sections.append(f"## {env}, {algo}\n\n" + "\n\n".join(_tables(plan, cores, compared[env, algo])))
    return "\n\n".join(sections)


def _findings(compared: dict[str, Any], cores: Groups, reference: str) -> list[str]:
    """A list: how well each core does, and of RIMs and each other core, which loses less by novelty."""
    groups, measure = compared["groups"], compared["metric"]

    def of_each(numbers: dict[str, dict[str, Any]]) -> str:
        return ", ".join(f"{core} {Estimate(each['iqm'], *(each['iqm_95'] or ()))}" for core, each in numbers.items())

    lines = []
    for name in (reference, NOVEL):
        if all(name in group["variants"] for group in groups.values()):
            means = of_each({core: group["variants"][name] for core, group in groups.items()})
            lines.append(f"- {measure.capitalize()}, {name}: {means}.")
    costs = {core: group["novelty_cost"] for core, group in groups.items() if "novelty_cost" in group}
    if not costs:
        return lines
    lines.append(f"- Novelty alone costs ({measure} in matched controls minus novel variants): {of_each(costs)}.")
    rims = [core for core, results in cores.items() if results[0]["definition"]["config"]["core"] == "rims"]
    for pair in compared["improvement"]:
        if pair["of"] in rims or pair["over"] in rims:
            of, over = pair["of"], pair["over"]
            probability = Estimate(pair["novelty_cost"]["probability"], *(pair["novelty_cost"]["probability_95"] or ()))
            if not probability.leaves_out_a_half:
                lines.append(f"- Between {of} and {over} no difference in that cost can be told")
            else:
                lines.append(f"- {of} loses {'less' if probability.value > 0.5 else 'more'} by novelty than {over}")
            lines[-1] += f" (probability that a run of {of} loses less: {probability})."
    return lines


def _tables(plan: Plan, cores: Groups, compared: dict[str, Any]) -> list[str]:
    groups, measure = compared["groups"], compared["metric"]
    seeds = ", ".join(f"{core} {len(group['seeds'])}" for core, group in groups.items())
    means = {core: _column(group["variants"], "iqm") for core, group in groups.items()}
    drops = {core: _column(group["variants"], "drop_iqm") for core, group in groups.items()}
    better = {f"{p['of']} over {p['over']}": _column(p["variants"], "probability") for p in compared["improvement"]}
    parts = [
        f"{measure.capitalize()} over {plan.suite.evaluation.episodes} episodes of each policy; interquartile mean "
        f"over seeds (number of seeds: {seeds}), with 95 % bootstrap intervals (one seed has none):\n\n"
        f"{_by_variant(means)}",
        f"Drop: the variant of training minus this variant, of the same policy:\n\n{_by_variant(drops)}",
    ]
    if better:
        parts.append(
            f"Probability that a run with the first core has a higher {measure} than one with the second, with 95 % "
            f"bootstrap intervals; * where the interval leaves out 0.5:\n\n{_by_variant(better, mark=True)}"
        )
    counts = {core: results[0]["parameters"] for core, results in cores.items()}
    rows = [[part, *(f"{count[part]:,}" for count in counts.values())] for part in next(iter(counts.values()))]
    rows.append(["all", *(f"{sum(count.values()):,}" for count in counts.values())])
    parts.append("Parameters:\n\n" + table(["", *counts], rows))
    return parts + [f"Note: {note}." for note in compared["notes"]]


def _as_played(core: str, result: dict[str, Any]) -> dict[str, Any]:
    """A result as ``play_variants`` gives it, with the suite's name for the core."""
    definition = result["definition"]
    return {
        "run": f"{core}, seed {definition['seed']}",
        "env": {"id": definition["env"], **definition["env_options"]},
        "core": core,
        "algo": definition["algo"],
        "seed": definition["seed"],
        "steps": result["steps"],
        "parameters": sum(result["parameters"].values()),
        "policy_kwargs": {},
        **result["evaluation"],
    }


def _column(variants: dict[str, Any], name: str) -> dict[str, Estimate]:
    return {
        variant: Estimate(each[name], *(each[f"{name}_95"] or ()))
        for variant, each in variants.items()
        if each[name] is not None
    }


def _by_variant(columns: dict[str, dict[str, Estimate]], mark: bool = False) -> str:
    rows = [
        [name, *(f"{each[name]}{' *' if mark and each[name].leaves_out_a_half else ''}" for each in columns.values())]
        for name in next(iter(columns.values()))
    ]
    return table(["variant", *columns], rows)


def _draw(plan: Plan, groups: dict[tuple[str, str], Groups]) -> Figure:
    """One row for each environment and algorithm, one column for each variant that was played on the way."""
    assert plan.suite.curve is not None
    variants = plan.suite.curve.variants
    figure = Figure(figsize=(4 * len(variants), 3.2 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), len(variants), squeeze=False, sharex="row", sharey=True)
    colours = dict(zip(plan.suite.cores, (f"C{i}" for i in range(10)), strict=False))
    for row, ((env, algo), cores) in zip(panels, groups.items(), strict=True):
        measure = _measure(cores)
        for axes, variant in zip(row, variants, strict=True):
            for core, results in cores.items():
                steps, values = _over_training(results, variant, measure)
                label = f"{core} ({len(results)} seed{'s' if len(results) > 1 else ''})"
                axes.plot(steps, values.mean(0), color=colours[core], label=label)
                axes.fill_between(steps, values.min(0), values.max(0), color=colours[core], alpha=0.15, lw=0)
            axes.set_title(f"{env}, {algo}: {variant}", fontsize=9)
            axes.grid(alpha=0.3)
            if measure == "success":
                axes.set_ylim(0, 1)
        row[0].set_ylabel(measure)
        row[0].legend(fontsize=7)
    for axes in panels[-1]:
        axes.set_xlabel("steps of training")
    return figure


def _over_training(results: list[dict[str, Any]], variant: str, measure: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and values (seeds, steps). All runs of a setting keep their policies at the same steps."""
    curves = [
        [(point["steps"], point["variants"][variant][measure]) for point in result["on_the_way"]]
        + [(result["steps"], result["evaluation"]["variants"][variant][measure])]
        for result in results
    ]
    table_ = np.array(curves)
    return table_[0, :, 0], table_[:, :, 1]


def _of(done: Results, env: str, algo: str) -> Groups:
    groups: Groups = {}
    for job, result in done:
        if (job.name_of_env, job.algo) == (env, algo):
            groups.setdefault(job.core, []).append(result)
    return groups


def _envs(done: Results) -> list[str]:
    return list(dict.fromkeys(job.name_of_env for job, _ in done))


def _measure(cores: Groups) -> str:
    """Return where an environment knows no success."""
    first = next(iter(next(iter(cores.values()))[0]["evaluation"]["variants"].values()))
    return "return" if first["success"] is None else "success"
