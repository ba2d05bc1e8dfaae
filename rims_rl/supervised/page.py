"""The page of a task: tables and pictures from its result files alone, with the paper's numbers beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from rims_rl.errors import UserError
from rims_rl.files import replacing
from rims_rl.statistics import mean_difference, summary
from rims_rl.suite.tables import table
from rims_rl.supervised.task import Task, load
from rims_rl.zoo import shipped_sections

PAPER = "supervised_paper.yml"
SIZES = ("core", "num_rims", "num_active", "hidden_size")  # the label says these in words
Group = list[dict[str, Any]]  # the results of the seeds of one setting


def write_page(task: type[Task], results: Path) -> None:
    """Write ``<results>/<task>.md`` and the PNGs beside it."""
    groups = read_groups(task, results)
    if not groups:
        raise UserError(f"{results / task.name} has no results; run some first: rims-rl supervised {task.name}")
    out = results / f"{task.name}.md"
    sections = [_heading(task, groups), _settings(groups)]
    for number, family in enumerate(_families(groups)):
        sections += [*_tables(task, family), *_differences(task, family)]
        sections += _pictures(family, out.with_name(f"{out.stem}_{number}" if number else out.stem))
    with replacing(out) as temporary:
        temporary.write_text("\n\n".join([*sections, _provenance(groups)]) + "\n")
    count = sum(len(group) for group in groups.values())
    Console(highlight=False, soft_wrap=True).print(f"{count} results: written to {out}")


def read_groups(task: type[Task], results: Path) -> dict[str, Group]:
    """Setting in words -> its results, RIMs first."""
    found: Group = []
    for path in sorted((results / task.name).glob("*.json")):
        try:
            found.append(json.loads(path.read_text()))
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}); take it from git, or remove it to train again") from error
    groups: dict[str, Group] = {}
    found.sort(key=lambda result: (result["definition"]["config"]["core"] != "rims", _size(result), _seed(result)))
    for result in found:
        groups.setdefault(_label(task, result["definition"]["config"]), []).append(result)
    return groups


def _families(groups: dict[str, Group]) -> list[dict[str, Group]]:
    """Settings that were tested in the same way: only these can be compared."""
    families: dict[tuple[str, ...], dict[str, Group]] = {}
    for label, group in groups.items():
        families.setdefault(tuple(group[0]["tests"]), {})[label] = group
    return list(families.values())


def _label(task: type[Task], config: dict[str, Any]) -> str:
    """Core and sizes, then whatever differs from the zoo's settings for this core."""
    standard = load(task, [f"core={config['core']}"]).model_dump()
    ours, usual = ({**each, **each["core_kwargs"]} for each in (config, standard))
    others = [key for key in ours if key not in (*SIZES, "core_kwargs") and ours[key] != usual.get(key)]
    missing = [f"without {key}" for key in usual if key not in ours]
    return _words(config, [*(f"{key}={ours[key]}" for key in others), *missing])


def _words(sizes: dict[str, Any], more: Iterable[str]) -> str:
    core = sizes["core"]
    words = [f"rims {sizes['num_rims']}/{sizes['num_active']}" if core == "rims" else core]
    if sizes["hidden_size"] is not None:
        words.append(f"{sizes['hidden_size']} units")
    return ", ".join([*words, *more])


def _heading(task: type[Task], groups: dict[str, Group]) -> str:
    few = [label for label, group in groups.items() if len(group) < 3]
    partial = f"\n\n**This page is partial**: {len(few)} of {len(groups)} settings have fewer than 3 seeds so far."
    return (
        f"# {task.title}\n\nWritten by `rims-rl supervised {task.name} --page` from the files in `{task.name}/`, of "
        "which each is one training with one seed." + (partial if few else "")
    )


def _settings(groups: dict[str, Group]) -> str:
    rows = []
    for label, group in groups.items():
        learned = sum(result["stopped"] == "learned" for result in group)
        iterations = ", ".join(f"{result['iterations']:,}" for result in group)
        last = ", ".join(f"{result['curve'][-1][1]:.3f}" if result["curve"] else "–" for result in group)
        parameters = group[0]["parameters"]["core"]
        hours = sum(result["seconds"]["training"] for result in group) / 3600
        rows.append(
            [label, len(group), iterations, last, f"{learned} of {len(group)}", f"{parameters:,}", f"{hours:.2f}"]
        )
    head = ["setting", "seeds", "iterations", "last training loss", "stopped early", "parameters of the core", "hours"]
    return "## What was trained\n\n" + table(head, rows)


class PaperRow(NamedTuple):
    """A row of supervised_paper.yml."""

    sizes: dict[str, Any]  # core, num_rims, num_active, hidden_size, as far as the paper says
    options: dict[str, Any]
    tests: dict[str, float]

    def __str__(self) -> str:
        return _words({key: self.sizes.get(key) for key in SIZES}, [f"{k}={v}" for k, v in self.options.items()])

    def is_of(self, config: dict[str, Any]) -> bool:
        """Whether it is of this setting. What RIMs leave out is among the core's options."""
        whole = {"input_attention": True, "communication": True}
        same = all(config[key] == value for key, value in self.sizes.items())
        return same and whole | self.options == whole | {k: v for k, v in config["core_kwargs"].items() if k in whole}


def _paper_rows(task: type[Task], measure: str, tests: Iterable[str]) -> list[PaperRow]:
    found = []
    for table_ in shipped_sections(PAPER).get(task.name, ()):
        if table_["measure"] == measure and set(table_["tests"]) <= set(tests):
            for row in table_["rows"]:
                sizes = {key: value for key, value in zip(SIZES, row, strict=False) if value is not None}
                found.append(PaperRow(sizes, row[4], dict(zip(table_["tests"], row[5:], strict=True))))
    return found


def _tables(task: type[Task], groups: dict[str, Group]) -> list[str]:
    """One table for each measure: ours with intervals, and the paper's where it has one."""
    tests = next(iter(groups.values()))[0]["tests"]
    parts = []
    for measure in next(iter(tests.values())):
        paper = _paper_rows(task, measure, tests)
        told = set(paper[0].tests) if paper else set()
        rows = []
        for label, group in groups.items():
            theirs = [row for row in paper if row.is_of(group[0]["definition"]["config"])]
            cells: list[object] = [label, len(group)]
            for test in tests:
                cells.append(_mean(np.array([result["tests"][test][measure] for result in group])))
                if test in told:
                    cells.append(f"{theirs[0].tests[test]:g}" if theirs else "–")
            rows.append(cells)
        head = ["setting", "seeds"]
        for test in tests:
            head += [test, "paper"] if test in told else [test]
        parts.append(
            f"## {measure.capitalize()}\n\nMeans over seeds with 95 % bootstrap intervals (one seed has none).\n\n"
            + table(head, rows)
        )
        ours = [group[0]["definition"]["config"] for group in groups.values()]
        others = [row for row in paper if not any(row.is_of(config) for config in ours)]
        if others:
            rest = [[str(row), *(f"{value:g}" for value in row.tests.values())] for row in others]
            parts.append("In the paper, and not run here:\n\n" + table(["setting", *others[0].tests], rest))
    return parts


def _mean(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}" if len(values) else "–"
    found = summary(values)
    low, high = found["mean_95"]
    return f"{found['mean']:.3f} ({low:.3f} to {high:.3f})"


def _differences(task: type[Task], groups: dict[str, Group]) -> list[str]:
    """For each width: every other setting minus the RIMs of that width, so that only the memory differs."""
    usual, parts = load(task), []
    by_width: dict[int, dict[str, Group]] = {}
    for label, group in groups.items():
        by_width.setdefault(group[0]["definition"]["config"]["hidden_size"], {})[label] = group

    def unusual(label: str) -> tuple[bool, int]:
        config = groups[label][0]["definition"]["config"]
        return (config["num_rims"], config["num_active"]) != (usual.num_rims, usual.num_active), len(label)

    for same_width in by_width.values():
        rims = [label for label in same_width if label.startswith("rims")]
        if rims and len(same_width) > 1:
            parts.append(_against(min(rims, key=unusual), same_width))
    return parts


def _against(reference: str, groups: dict[str, Group]) -> str:
    first, parts = groups[reference], []
    for measure in next(iter(first[0]["tests"].values())):
        rows = []
        for label, group in groups.items():
            if label != reference:
                pairs = (
                    [[r["tests"][test][measure] for r in each] for each in (group, first)] for test in first[0]["tests"]
                )
                rows.append([label, *(_difference(*map(np.array, pair)) for pair in pairs)])
        parts.append(f"{measure.capitalize()}:\n\n" + table(["setting", *first[0]["tests"]], rows))
    return (
        f"## Against {reference}\n\nMean over seeds of each setting of the same width minus that of {reference}, with "
        "95 % bootstrap intervals where both have at least two seeds.\n\n" + "\n\n".join(parts)
    )


def _difference(values: np.ndarray, others: np.ndarray) -> str:
    difference = f"{values.mean() - others.mean():+.3f}"
    if min(len(values), len(others)) < 2:
        return difference
    low, high = mean_difference(values, others)
    return f"{difference} ({low:+.3f} to {high:+.3f})"


def _pictures(groups: dict[str, Group], begin: Path) -> list[str]:
    """PNGs whose names begin like ``begin``."""
    drawn = {"learning": _learning(groups)}
    for name, key, draw in (
        ("activation", "active", _activation), ("per_frame", "per_frame", _per_frame), ("film", "film", _film),
    ):  # fmt: skip
        recorded = {label: group[0]["record"] for label, group in groups.items() if key in group[0]["record"]}
        if recorded:
            drawn[name] = draw(recorded)
    parts = []
    for name, figure in drawn.items():
        path = begin.with_name(f"{begin.name}_{name}.png")
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=100, format="png")
        parts.append(f"![{name}]({path.name})\n\n{CAPTIONS[name]}")
    return parts


CAPTIONS = {
    "learning": "Over training, one line for each seed: the loss of training (mean of 100 iterations), and the tests.",
    "activation": "Who is active (dark) at each step of one new sequence, seed 0; below, what goes in, or the frame. "
    "In brackets, if RIMs have strips of their own: correlation with how much of the balls is in the strip.",
    "per_frame": "Cross entropy of each frame, seed 0; right of the line the network sees its own frames.",
    "film": "Frames of one clip, seed 0; a blue frame is one before which the network saw its own.",
}


def _learning(groups: dict[str, Group]) -> Figure:
    tests = next(iter(groups.values()))[0]["tests"]
    measure = next(iter(next(iter(tests.values()))))
    names = ["loss of training", *tests]
    figure = Figure(figsize=(3.2 * len(names), 3.2), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False, sharey=False)[0]
    for number, (label, group) in enumerate(groups.items()):
        for seed, result in enumerate(group):
            label_once = label if seed == 0 else None
            lines = [np.array(result["curve"]).reshape(-1, 2)]
            for test in tests:
                points = [(point["iteration"], point["tests"][test][measure]) for point in result["on_the_way"]]
                lines.append(np.array([*points, (result["iterations"], result["tests"][test][measure])]))
            for axes, line in zip(panels, lines, strict=True):
                axes.plot(line[:, 0], line[:, 1], color=f"C{number % 10}", label=label_once, lw=1)
    for axes, name in zip(panels, names, strict=True):
        axes.set_title(name if name == names[0] else f"{name}: {measure}", fontsize=8)
        axes.set_xlabel("iterations", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", fontsize=7)
    return figure


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


def _per_frame(recorded: dict[str, dict[str, Any]]) -> Figure:
    tests = list(next(iter(recorded.values()))["per_frame"])
    figure = Figure(figsize=(3.6 * len(tests), 3), layout="constrained")
    for axes, test in zip(figure.subplots(1, len(tests), squeeze=False)[0], tests, strict=True):
        for label, record in recorded.items():
            axes.plot(range(1, len(record["per_frame"][test]) + 1), record["per_frame"][test], label=label, lw=1)
        axes.axvline(record["fed"] + 0.5, color="grey", lw=1)
        axes.set_title(test, fontsize=8)
        axes.set_xlabel("frame", fontsize=8)
        axes.tick_params(labelsize=7)
    axes.legend(fontsize=6)
    return figure


def _film(recorded: dict[str, dict[str, Any]]) -> Figure:
    """One row for each way to roll out, of the first setting."""
    record = next(iter(recorded.values()))
    rows = list(record["film"].values())
    figure = Figure(figsize=(1.1 * len(rows[0]) + 1, 1.15 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    for line, name, row in zip(panels, record["film"], rows, strict=True):
        for number, (axes, frame) in enumerate(zip(line, row, strict=True)):
            side = int(len(frame) ** 0.5)
            axes.imshow(np.array([int(shade, 16) for shade in frame]).reshape(side, side), cmap="gray", vmin=0, vmax=15)
            axes.set(xticks=[], yticks=[])
            time = 1 + number * record["every"]
            axes.spines[:].set_color("tab:green" if time <= record["fed"] else "tab:blue")
            if line is panels[0]:
                axes.set_title(f"{time}", fontsize=7)
        line[0].set_ylabel(name, fontsize=7)
    return figure


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


def _size(result: dict[str, Any]) -> tuple[Any, ...]:
    config = result["definition"]["config"]
    return config["core"], -config["hidden_size"], config["num_rims"], config["num_active"]


def _seed(result: dict[str, Any]) -> int:
    seed: int = result["definition"]["seed"]
    return seed


def _all(values: Iterable[str]) -> str:
    return "; ".join(sorted(set(values)))
