"""The page of imitations: tables and pictures from result files alone, with the paper's numbers beside ours."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import replacing
from rims_rl.common.markdown import table
from rims_rl.common.statistics import mean_difference, summary
from rims_rl.config.layers import shipped_sections
from rims_rl.imitation.records import ExpertRecord
from rims_rl.runs.records import read_record
from rims_rl.supervised.job import read_result

PAPER = "imitation_paper.yml"
NAMED = ("core", "num_rims", "num_active", "core_kwargs")  # in the label of a setting
OF_EXPERT = ("env", "env_options", "expert", "trajectory_seed", "test_every", "num_layers", "strengths")
FAILED = 0.1  # of what the expert scores above random actions
Group = list[dict[str, Any]]  # results of one setting, one for each seed


class ImitationPage(NamedTuple):
    path: Path
    results: int  # how many it is made of


def write_page(results: Path) -> ImitationPage:
    """Write ``<results>.md``, and PNGs into the folders of ``results``, of which each is one environment."""
    found = {path.parent: read_groups(path.parent) for path in sorted(results.glob("*/expert.json"))}
    if not found:
        raise UserError(f"{results} has no results; run some first: rims-rl imitate EXPERT")
    sections = [_heading(results)]
    for folder, groups in found.items():
        sections += _section(folder, groups)
    out = results.with_name(f"{results.name}.md")
    with replacing(out) as temporary:
        temporary.write_text("\n\n".join(sections) + "\n")
    return ImitationPage(out, sum(len(group) for groups in found.values() for group in groups.values()))


def read_groups(folder: Path) -> dict[str, Group]:
    """Setting in words -> its results."""
    results = [read_result(path) for path in sorted(folder.glob("*_*.json"))]
    results.sort(key=lambda each: (label_of(each["definition"]["config"]), each["definition"]["seed"]))
    shared = _shared(results)
    groups: dict[str, Group] = {}
    for result in results:
        config = result["definition"]["config"]
        own = [f"{key} {value}" for key, value in _others(config).items() if key not in shared]
        groups.setdefault(", ".join([label_of(config), *own]), []).append(result)
    return groups


def label_of(config: dict[str, Any]) -> str:
    """A core in words, such as `rims 6/3, no input attention`."""
    core = config["core"]
    words = [f"{core} {config['num_rims']}/{config['num_active']}" if core.startswith("rims") else core]
    for key, value in config["core_kwargs"].items():
        words.append(f"no {key.replace('_', ' ')}" if value is False else f"{key}={value}")
    return ", ".join(words)


def _others(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in (*NAMED, *OF_EXPERT)}


def _shared(results: Group) -> dict[str, Any]:
    """Settings that all have."""
    first, *others = [_others(result["definition"]["config"]) for result in results] or [{}]
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def _heading(results: Path) -> str:
    return (
        "# Imitation from pixels\n\nThe paper's appendix E.1. A network sees 64 x 64 pictures of an expert, the last "
        "four together, and learns its actions; then it plays itself, also with noise in the joints, which it never "
        f"met in training. Written by `rims-rl imitate --page` from the files in `{results.name}/`, of which each is "
        "one training with one seed."
    )


def _section(folder: Path, groups: dict[str, Group]) -> list[str]:
    record = read_record(folder / "expert.json", ExpertRecord, "remove it, and the same command writes it again")
    few = [label for label, group in groups.items() if len(group) < 3]
    partial = [f"**Partial**: {len(few)} of {len(groups)} settings have fewer than 3 seeds so far."] if few else []
    if not groups:
        partial = ["**Only the expert so far**: no network has been trained to the end."]
    parts = [
        f"## {folder.name}",
        *partial,
        *_nobody_plays(record, groups),
        _expert(record),
        *_picture_of_frames(folder),
        _returns(record, groups),
    ]
    parts += [*_verdict(groups), *_learning(folder, record, groups)]
    return parts + ([_settings(groups), _provenance(groups)] if groups else [])


def _nobody_plays(record: ExpertRecord, groups: dict[str, Group]) -> list[str]:
    """A warning before tables that compare what has failed."""
    clean = next(iter(record.tests.values()))
    if "expert" not in clean or not groups:
        return []
    random, expert = np.mean(clean["random"]), np.mean(clean["expert"])
    best = max(_values(group, next(iter(record.tests))).mean() for group in groups.values())
    if best - random > FAILED * (expert - random):
        return []
    return [
        "**No network plays yet**: on the way from random actions to the expert, the best has come "
        f"{100 * FAILED:.0f} % at most. Nothing below says which memory is better."
    ]


def _expert(record: ExpertRecord) -> str:
    scores = record.trajectories["scores"]
    steps = f", trained for {record.expert['steps']:,} steps" if record.expert.get("steps") else ""
    return (
        f"The expert: `{record.expert['name']}`{steps}. What networks learn from: {len(scores)} episodes with seed "
        f"{record.trajectories['seed']}, {record.trajectories['steps']:,} steps, with a mean return of "
        f"{np.mean(scores):,.0f} ({min(scores):,.0f} to {max(scores):,.0f})."
    )


def _picture_of_frames(folder: Path) -> list[str]:
    if not (folder / "frames.png").exists():
        return []
    return [
        f"![Rows of small pictures of the body]({folder.parent.name}/{folder.name}/frames.png)\n\nThe expert as "
        "networks see it, every tenth step of one episode; where a row says noise, it is in the joints, in radians at "
        "each step."
    ]


def _returns(record: ExpertRecord, groups: dict[str, Group]) -> str:
    tests = list(record.tests)
    paper = _paper_rows(record.env)
    of_paper = {tests[0]: "training", tests[-1]: "perturbed"} if paper and len(tests) > 1 else {}
    head = ["who"]
    for test in tests:
        head += [test, "paper"] if test in of_paper else [test]
    rows: list[list[object]] = []
    for who in ("expert", "random"):
        cells: list[object] = [f"the {who}" if who == "expert" else "random actions"]
        for test in tests:
            scores = record.tests[test].get(who)
            cells += [_mean(np.array(scores)) if scores else "–", *(["–"] if test in of_paper else [])]
        rows.append(cells)
    for label, group in groups.items():
        theirs = next((row for row in paper if _is_of(row, group[0]["definition"]["config"])), None)
        cells = [label]
        for test in tests:
            cells.append(_cell(group, test))
            if test in of_paper:
                printed = theirs.get(of_paper[test]) if theirs else None
                cells.append(f"{printed[0]:,} ± {printed[1]:,}" if printed else "–")
        rows.append(cells)
    how = (
        "### Return\n\nOf networks: mean over seeds with a 95 % bootstrap interval, then every seed, each the mean of "
        f"{_episodes(groups)}, the same for all networks, with seeds of which no trajectory is. Of the expert and of "
        "random actions: mean over episodes, likewise."
    )
    if of_paper:
        how += f" The paper does not say how strong its noise is; its column stands beside our strongest, {tests[-1]}."
    return f"{how}\n\n{table(head, rows)}"


def _episodes(groups: dict[str, Group]) -> str:
    if not groups:
        return "some episodes"
    counts = sorted({group[0]["definition"]["config"]["test_sequences"] for group in groups.values()})
    return f"{' or '.join(map(str, counts))} episodes"


def _paper_rows(env: str) -> list[dict[str, Any]]:
    shipped = shipped_sections(PAPER)
    return list(shipped["rows"]) if shipped["env"] == env else []


def _is_of(row: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether a row of the paper's is of this setting."""
    kwargs = row["settings"].get("core_kwargs", {})
    same = all(config[key] == value for key, value in row["settings"].items() if key != "core_kwargs")
    return same and kwargs == config["core_kwargs"]


def _values(group: Group, test: str) -> np.ndarray:
    return np.array([result["tests"][test]["return"] for result in group], float)


def _cell(group: Group, test: str) -> str:
    if any(test not in result["tests"] for result in group):
        return "–"
    values = _values(group, test)
    return _mean(values) + (f"<br>{', '.join(f'{each:,.0f}' for each in values)}" if len(values) > 1 else "")


def _mean(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{values[0]:,.0f}"
    found = summary(values)
    low, high = found["mean_95"]
    return f"{found['mean']:,.0f} ({low:,.0f} to {high:,.0f})"


def _verdict(groups: dict[str, Group]) -> list[str]:
    """Every setting minus the LSTM, whose numbers the paper's RIMs are held against."""
    lstms = [label for label in groups if label.split(",")[0] == "lstm"]
    lstm = max(lstms, key=lambda label: len(groups[label]), default=None)
    others = [label for label in groups if label != lstm and len(groups[label]) > 1]
    if lstm is None or len(groups[lstm]) < 2 or not others:
        return []
    tests = [test for test in groups[lstm][0]["tests"] if all(test in groups[other][0]["tests"] for other in others)]
    rows = []
    for label, test in itertools.product(others, tests):
        ours, theirs = _values(groups[label], test), _values(groups[lstm], test)
        low, high = mean_difference(ours, theirs)
        verdict = "more" if low > 0 else "less" if high < 0 else "undecided"
        rows.append([label, test, f"{ours.mean() - theirs.mean():+,.0f} ({low:+,.0f} to {high:+,.0f})", verdict])
    return [
        f"### Against {lstm}\n\nDifference of the means, with its 95 % bootstrap interval over seeds, which few seeds "
        "make narrower than it should be.\n\n" + table(["setting", "test", "return minus the LSTM's", "so"], rows)
    ]


def _learning(folder: Path, record: ExpertRecord, groups: dict[str, Group]) -> list[str]:
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (label, group) in enumerate(groups.items()):
        for seed, result in enumerate(group):
            points = np.array([[at, np.nan if loss is None else loss] for at, loss in result["curve"]], float)
            if len(points):
                left.plot(*points.T, color=f"C{number}", label=None if seed else label, linewidth=1)
    measure = next((group[0]["record"].get("loss", "loss") for group in groups.values()), "loss")
    left.set(xlabel="iterations", ylabel=f"{measure} in training", title="networks", yscale="log")
    if left.lines:  # a point is a hundred iterations
        left.legend(fontsize=7)
    if record.curve:
        right.plot(*np.array(record.curve).T, color="black")
        if record.expert.get("steps"):
            right.axvline(record.expert["steps"], color="gray", linestyle="--", linewidth=1)
        right.set(xlabel="steps", ylabel="return", title="the expert in training; imitated: the dashed line")
    else:
        right.set_axis_off()
    save_figure(figure, folder / "learning.png")
    return [f"![Losses and the expert's returns]({folder.parent.name}/{folder.name}/learning.png)"]


def _settings(groups: dict[str, Group]) -> str:
    shared = _shared([result for group in groups.values() for result in group])
    rows = []
    for label, group in groups.items():
        losses = ", ".join(f"{r['curve'][-1][1]:.4f}" if r["curve"] and r["curve"][-1][1] else "–" for r in group)
        minutes = sum(result["seconds"]["training"] for result in group) / 60
        tests = sum(result["seconds"]["tests"] for result in group) / 60
        diverged = sum(result["stopped"] == "diverged" for result in group)
        parameters = f"{group[0]['parameters']['core']:,}"
        rows.append([label, len(group), diverged, losses, parameters, f"{minutes:.0f}", f"{tests:.0f}"])
    head = ["setting", "seeds", "diverged", "last training loss", "parameters of the core", "minutes", "of tests"]
    words = ", ".join(f"{key} {value}" for key, value in shared.items())
    return f"### What was trained\n\nAll have: {words}.\n\n{table(head, rows)}"


def _provenance(groups: dict[str, Group]) -> str:
    results = [result for group in groups.values() for result in group]
    commits = sorted({str(result["commit"]) for result in results})
    machines = sorted({f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in results})
    dates = sorted(result["date"][:10] for result in results)
    return f"Commits {', '.join(commits)}; {dates[0]} to {dates[-1]}; {'; '.join(machines)}."
