"""The page of a task: tables and pictures from its result files alone, with the paper's numbers beside ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import replacing
from rims_rl.common.markdown import table
from rims_rl.common.statistics import mean_difference, summary
from rims_rl.supervised.job import read_result
from rims_rl.supervised.paper_rows import SIZES, PaperRow, in_words, option_in_words, paper_rows
from rims_rl.supervised.task import Task, load
from rims_rl.supervised.task_figures import CAPTIONS, Group, figures, highest, shown, value
from rims_rl.supervised.training import DIVERGED, diverged
from rims_rl.supervised.translation_page import corpora_section, translations_section

ROLLED_OUT = (4, 5)


class TaskPage(NamedTuple):
    path: Path
    results: int  # how many it is made of


def write_page(task: type[Task], results: Path) -> TaskPage:
    """Write ``<results>/<task>.md`` and the PNGs beside it."""
    groups = read_groups(task, results)
    if not groups:
        raise UserError(f"{results / task.name} has no results; run some first: rims-rl supervised {task.name}")
    out = results / f"{task.name}.md"
    sections = [_heading(task, groups), _settings(task, groups)]
    for number, family in enumerate(_families(task, groups)):
        sections += [
            *corpora_section(family),
            *_tables(task, family),
            *_frames(family),
            *_differences(task, family),
            *_ablations(task, family),
        ]
        sections += _pictures(task, family, out.with_name(f"{out.stem}_{number}" if number else out.stem))
        sections += translations_section(family)
    with replacing(out) as temporary:
        temporary.write_text("\n\n".join([*sections, _provenance(groups)]) + "\n")
    return TaskPage(out, sum(len(group) for group in groups.values()))


def read_groups(task: type[Task], results: Path) -> dict[str, Group]:
    """Setting in words -> its results, RIMs first."""
    found = [read_result(path) for path in sorted((results / task.name).glob("*.json"))]
    groups: dict[str, Group] = {}
    found.sort(
        key=lambda result: (result["definition"]["config"]["core"] != "rims", _size(task, result), _seed(result))
    )
    shared = _shared(task, found)
    for result in found:
        config = result["definition"]["config"]
        own = [option for option in _options(task, config) if option not in shared]
        groups.setdefault(in_words(config, own), []).append(result)
    return groups


def _families(task: type[Task], groups: dict[str, Group]) -> list[dict[str, Group]]:
    """Settings whose first test is the same, of the same data: only these can be compared, on the tests that they have
    in common."""
    families: dict[tuple[Any, ...], dict[str, Group]] = {}
    for label, group in groups.items():
        config = group[0]["definition"]["config"]
        same = next(iter(group[0]["tests"])), *(config[key] for key in task.data_settings)
        families.setdefault(same, {})[label] = group
    return list(families.values())


def _options(task: type[Task], config: dict[str, Any]) -> list[str]:
    """Whatever differs from the zoo's settings for this core, but for the sizes."""
    standard = load(task, [f"core={config['core']}"]).definition()
    ours, usual = ({**each, **each["core_kwargs"]} for each in (config, standard))
    others = [key for key in ours if key not in (*SIZES, "core_kwargs") and ours[key] != usual.get(key)]
    missing = [key for key in usual if key not in ours]
    if missing == ["input_dropout", "comm_dropout"]:
        return [*(option_in_words(key, ours[key]) for key in others), "no dropout"]
    return [*(option_in_words(key, ours[key]) for key in others), *(f"without {key}" for key in missing)]


def _shared(task: type[Task], results: Iterable[dict[str, Any]]) -> list[str]:
    """The options that all have, which the page says once."""
    options = [_options(task, result["definition"]["config"]) for result in results]
    return [option for option in options[0] if all(option in others for others in options)] if options else []


def _heading(task: type[Task], groups: dict[str, Group]) -> str:
    few = [label for label, group in groups.items() if len(group) < 3]
    partial = f"\n\n**This page is partial**: {len(few)} of {len(groups)} settings have fewer than 3 seeds so far."
    return (
        f"# {task.title}\n\nWritten by `rims-rl supervised {task.name} --page` from the files in `{task.name}/`, of "
        "which each is one training with one seed." + (partial if few else "")
    )


def _settings(task: type[Task], groups: dict[str, Group]) -> str:
    shared, rows = ", ".join(_shared(task, itertools.chain(*groups.values()))), []
    for label, group in groups.items():
        can_stop = group[0]["definition"]["config"]["stop_below"] > 0
        solved = f"{sum(result['stopped'] == 'learned' for result in group)} of {len(group)}" if can_stop else "–"
        lost = sum(diverged(result["curve"]) for result in group)
        iterations = ", ".join(f"{result['iterations']:,}" for result in group)
        top = highest([group])
        last = ", ".join(_loss(result["curve"][-1][1], top) if result["curve"] else "–" for result in group)
        parameters = group[0]["parameters"][task.counted]
        hours = sum(result["seconds"]["training"] for result in group) / 3600
        rows.append([label, solved, f"{lost} of {len(group)}", iterations, last, f"{parameters:,}", f"{hours:.2f}"])
    counted = "parameters of the core" if task.counted == "core" else "parameters"
    head = ["setting", "solved", "diverged", "iterations", "last training loss", counted, "hours"]
    return (
        "## What was trained\n\nSolved: training stopped early, with a loss as low as was asked for. Diverged: the "
        f"training loss rose above {DIVERGED} times its first value (each is the mean of 100 iterations), or was no "
        "number any more; such a seed counts like any other in all that follows."
        + (f" What all have, and the zoo has not: {shared}." if shared else "")
        + f"\n\n{table(head, rows)}"
    )


def _loss(loss: float | None, top: float) -> str:
    """In words, where what is far above guessing is as bad as any."""
    loss = math.inf if loss is None else loss
    return f">{top:g}" if loss > top else f"{loss:.3f}"


def _tables(task: type[Task], groups: dict[str, Group]) -> list[str]:
    """One table for each measure: ours, and the paper's where it has one."""
    tests, top = _all_tests(groups), highest(groups.values())
    parts = []
    for measure in _measures(groups):
        paper = paper_rows(task, measure, tests)
        in_paper = set(paper[0].tests) if paper else set()
        rows = []
        for label, group in groups.items():
            theirs = [row for row in paper if row.is_of(group[0]["definition"]["config"])]
            cells: list[object] = [label]
            for test in tests:
                cells.append(_cell(task, group, test, measure, top))
                if test in in_paper:
                    cells.append(f"{theirs[0].tests[test]:g}" if theirs else "–")
            rows.append(cells)
        head = ["setting"]
        for test in tests:
            head += [test, "paper"] if test in in_paper else [test]
        how = "Median over seeds, then every seed. Above ten times the first training loss, all are equally bad."
        if measure in task.bounded:
            how = "Mean over seeds with a 95 % bootstrap interval, then every seed."
        parts.append(f"## {measure[0].upper()}{measure[1:]}\n\n{how}\n\n" + table(head, rows))
        ours = [group[0]["definition"]["config"] for group in groups.values()]
        others = [row for row in paper if not any(row.is_of(config) for config in ours)]
        if others:
            parts.append(_not_run(others))
    return parts


def _all_tests(groups: dict[str, Group]) -> list[str]:
    return list(dict.fromkeys(test for group in groups.values() for test in group[0]["tests"]))


def _measures(groups: dict[str, Group]) -> list[str]:
    return list(next(iter(next(iter(groups.values()))[0]["tests"].values())))


def _cell(task: type[Task], group: Group, test: str, measure: str, top: float) -> str:
    if test not in group[0]["tests"]:
        return "–"
    values = np.array([value(result, test, measure) for result in group])
    if measure not in task.bounded:
        return _median(values, top)
    return _mean(values) + ("" if len(values) == 1 else f"<br>{', '.join(f'{each:.3f}' for each in values)}")


def _median(values: np.ndarray, top: float) -> str:
    seeds = [_loss(float(each), top) for each in values]
    return seeds[0] if len(seeds) == 1 else f"{_loss(float(np.median(values)), top)}<br>{', '.join(seeds)}"


def _mean(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    found = summary(values)
    low, high = found["mean_95"]
    return f"{found['mean']:.3f} ({low:.3f} to {high:.3f})"


def _frames(groups: dict[str, Group]) -> list[str]:
    """Cross entropy of the rolled-out frames that the paper's appendix D.7 looks at."""
    groups = {label: group for label, group in groups.items() if "per_frame" in shown(group)}
    if not groups:
        return []
    tests = list(next(iter(map(shown, groups.values())))["per_frame"])
    rows = []
    for label, group in groups.items():
        cells = []
        for test, number in itertools.product(tests, ROLLED_OUT):
            losses = np.array([_frame(result["record"], test, number) for result in group])
            cells.append(_median(losses, highest(groups.values())))
        rows.append([label, *cells])
    head = [f"{test}, {number}th" for test, number in itertools.product(tests, ROLLED_OUT)]
    return [
        "## The 4th and 5th frame rolled out\n\nCross entropy, as in appendix D.7; median over seeds, then every seed."
        "\n\n" + table(["setting", *head], rows)
    ]


def _frame(record: dict[str, Any], test: str, number: int) -> float:
    """Of the frame with this number after the true ones; a seed that diverged has recorded none."""
    losses = record["per_frame"][test] if "per_frame" in record else []
    index = record.get("fed", 0) + number - 1
    return losses[index] if index < len(losses) else math.inf


def _not_run(rows: list[PaperRow]) -> str:
    """The paper's other rows, folded: other memories first, then RIMs by what they leave out."""
    kinds: dict[str, list[PaperRow]] = {}
    for row in sorted(rows, key=lambda row: (row.sizes["core"] == "rims", len(row.options))):
        kind = ", ".join(["RIMs", *(option_in_words(*each) for each in row.options.items())])
        kinds.setdefault(kind if row.sizes["core"] == "rims" else "Other memories", []).append(row)
    parts = []
    for kind, same in kinds.items():
        cells = [[str(row), *(f"{number:g}" for number in row.tests.values())] for row in same]
        parts.append(f"{kind}:\n\n" + table(["setting", *same[0].tests], cells))
    return (
        f"<details><summary>In the paper, and not run here: {len(rows)} settings</summary>\n\n"
        + "\n\n".join(parts)
        + "\n\n</details>"
    )


def _differences(task: type[Task], groups: dict[str, Group]) -> list[str]:
    """For each width, or whatever the task compares at: every other memory minus the RIMs that have the same, so that
    only the memory differs."""
    parts = []
    alike: dict[str, dict[str, Group]] = {}
    for label, group in groups.items():
        alike.setdefault(str(group[0]["definition"]["config"][task.compared_at]), {})[label] = group
    for same in alike.values():
        rims = {label: group for label, group in same.items() if _is_rims(group)}
        others = {label: group for label, group in same.items() if label not in rims}
        if rims and others:
            reference = _reference(task, rims)
            parts.append(f"## Against {reference}\n\n" + _against(task, reference, rims[reference], others))
    return parts


def _ablations(task: type[Task], groups: dict[str, Group]) -> list[str]:
    """RIMs of all kinds and widths, beside the paper's with as many of them, active ones and parts."""
    rims = {label: group for label, group in groups.items() if _is_rims(group)}
    if len(rims) < 2:
        return []
    measure, top, reference = _measures(rims)[0], highest(groups.values()), _reference(task, rims)
    if (at := task.compared_at) != "hidden_size":  # widths may differ, but not whatever else the task compares at
        same = rims[reference][0]["definition"]["config"][at]
        rims = {label: group for label, group in rims.items() if group[0]["definition"]["config"][at] == same}
        if len(rims) < 2:
            return []
    paper = [row for row in paper_rows(task, measure, _all_tests(rims)) if row.sizes["core"] == "rims"]
    tests = list(paper[0].tests) if paper else _all_tests(rims)
    shared, rows = _shared(task, itertools.chain(*groups.values())), []
    for group in rims.values():
        config = group[0]["definition"]["config"]
        options = ", ".join(option for option in _options(task, config) if option not in shared) or "–"
        sizes = [config["num_rims"], config["num_active"], options, config["hidden_size"]]
        cells = [_cell(task, group, test, measure, top) for test in tests]
        if paper:
            theirs = next(
                (row for row in paper if row.is_of({**config, "hidden_size": row.sizes.get("hidden_size")})), None
            )
            sizes.append(theirs.sizes.get("hidden_size", "–") if theirs else "–")
            pairs = ([cell, f"{theirs.tests[t]:g}" if theirs else "–"] for t, cell in zip(tests, cells, strict=True))
            cells = [cell for pair in pairs for cell in pair]
        rows.append([*sizes, *cells])
    head = ["k_T", "k_A", "option", "units"]
    head += ["of the paper", *(name for test in tests for name in (test, "paper"))] if paper else tests
    others = {label: group for label, group in rims.items() if label != reference}
    return [
        f"## Ablations\n\nRIMs (k_T), how many of them are active (k_A), and what they do without. "
        f"{measure[0].upper()}{measure[1:]}, as above; the paper's may have another width.\n\n" + table(head, rows),
        _against(task, reference, rims[reference], others),
    ]


def _is_rims(group: Group) -> bool:
    return bool(group[0]["definition"]["config"]["core"] == "rims")


def _reference(task: type[Task], rims: dict[str, Group]) -> str:
    """The most usual of them."""
    usual = load(task)

    def unusual(label: str) -> tuple[bool, int]:
        config = rims[label][0]["definition"]["config"]
        return (config["num_rims"], config["num_active"]) != (usual.num_rims, usual.num_active), len(label)

    return min(rims, key=unusual)


def _against(task: type[Task], reference: str, first: Group, groups: dict[str, Group]) -> str:
    """Means of what cannot be spoilt by one seed; medians where there is no such measure."""
    measures = [measure for measure in _measures(groups) if measure in task.bounded]
    tests = [test for test in _all_tests(groups) if test in first[0]["tests"]]
    parts = []
    for measure in measures or _measures(groups):
        rows = []
        for label, group in groups.items():
            cells = []
            for test in tests:
                if test in group[0]["tests"]:
                    ours, theirs = (np.array([value(r, test, measure) for r in each]) for each in (group, first))
                    cells.append(_difference(ours, theirs, of_means=bool(measures)))
                else:
                    cells.append("–")
            rows.append([label, *cells])
        parts.append(f"{measure[0].upper()}{measure[1:]}:\n\n" + table(["setting", *tests], rows))
    how = (
        "Mean over seeds of each setting minus that of {}, with 95 % bootstrap intervals where both have at least two "
        "seeds."
        if measures
        else "Median over seeds of each setting minus that of {}."
    )
    return how.format(reference) + "\n\n" + "\n\n".join(parts)


def _difference(values: np.ndarray, others: np.ndarray, of_means: bool) -> str:
    if not of_means:
        difference = np.median(values) - np.median(others)
        return f"{difference:+.3f}" if np.isfinite(difference) else "–"
    difference = f"{values.mean() - others.mean():+.3f}"
    if min(len(values), len(others)) < 2:
        return difference
    low, high = mean_difference(values, others)
    return f"{difference} ({low:+.3f} to {high:+.3f})"


def _pictures(task: type[Task], groups: dict[str, Group], begin: Path) -> list[str]:
    """PNGs whose names begin like ``begin``."""
    parts = []
    for name, figure in figures(task, groups).items():
        path = begin.with_name(f"{begin.name}_{name}.png")
        save_figure(figure, path, dpi=100)
        parts.append(f"![{name}]({path.name})\n\n{CAPTIONS[name]}")
    return parts


def _provenance(groups: dict[str, Group]) -> str:
    done = [result for group in groups.values() for result in group]
    rows = [
        ["rims-rl", _all(f"{result['rims_rl']} ({result['commit']})" for result in done)],
        ["torch, numpy", _all(f"{result['torch']}, {result['numpy']}" for result in done)],
        ["machine", _all(f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in done)],
        ["threads", _all(str(result["threads"]) for result in done)],
        ["interrupted and resumed", str(sum(bool(result["resumed_from"]) for result in done))],
        ["when", f"{min(r['date'] for r in done)[:10]} to {max(r['date'] for r in done)[:10]}"],
    ]
    return "## Where it was run\n\n" + table(["", ""], rows)


def _size(task: type[Task], result: dict[str, Any]) -> tuple[Any, ...]:
    config = result["definition"]["config"]
    at = config[task.compared_at]
    return config["core"], -config["hidden_size"], config["num_rims"], config["num_active"], len(str(at))


def _seed(result: dict[str, Any]) -> int:
    seed: int = result["definition"]["seed"]
    return seed


def _all(values: Iterable[str]) -> str:
    return "; ".join(sorted(set(values)))
