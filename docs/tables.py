"""The tables of the documentation that show what benchmarks measured: ``make tables`` writes them anew.

Each stands between two comments, ``<!-- table: NAME -->`` and ``<!-- end of table -->``, and comes from one file in
docs/results. With ``--check`` nothing is written, and stale tables are named.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md")))
PLACE = re.compile(r"(?<=<!-- table: )(?P<name>\w+)(?P<open> -->\n)(?P<table>.*?)(?=<!-- end of table -->)", re.DOTALL)

BASELINES = ("block-gru", "gru", "lstm")
SHOWN = ("20, equal", "100, equal", "2 of 50", "2 of 200", "span 50", "span 200")  # of the tests of supervised tasks

Row = Iterable[object]


def _read(name: str) -> Any:
    return json.loads((DOCS / "results" / f"{name}.json").read_text())


def _table(head: Row, rows: Iterable[Row]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("|" + "|".join(f" {cell} " if cell != "" else " " for cell in row) + "|\n" for row in lines).replace(
        "| --- ", "|---"
    )


def _training(name: str, ceilings: bool) -> str:
    result = _read(name)
    speeds = {agent: numbers["steps_per_second"] for agent, numbers in result["agents"].items()}
    rows = speeds | result["ceilings"] if ceilings else speeds
    return _table(
        ("", "steps/s", "x stock"),
        [(who, f"{speed:.0f}", f"{speed / speeds['stock']:.1f}") for who, speed in rows.items()],
    )


def _where_the_time_goes(name: str) -> str:
    parts = _read(name)["where_rims_ms"]
    rows = [(part, f"{ms:.0f}", f"{100 * ms / sum(parts.values()):.0f}") for part, ms in parts.items()]
    return _table(("where the time goes (ours, rims)", "ms", "%"), rows)


def _in_short() -> str:
    agents = {name: agent["steps_per_second"] for name, agent in _read("bench_train")["agents"].items()}
    names = {"stock": "stock", "plain lstm": "plain LSTM", "ours, lstm": "ours, LSTM", "ours, rims": "ours, RIMs"}
    return _table(names.values(), [(f"{agents[name]:.0f}" for name in names)])


def _layer() -> str:
    rows = []
    for case in _read("bench_core")["sequences"]:
        ms = case["ms"]
        if case["cell"] == "lstm":
            speeds = [f"{ms['fused'] / ms[name]:.2f}" for name in ("stepped", "autograd", "rim 6/4", "robust 6/4")]
            more = [f"{ms[name] / ms['rim 6/4']:.1f}" for name in ("rim 24/4", "rim 96/4")]
            rows.append((f"{case['T']} x {case['B']}", *speeds, *more))
    head = (
        "T x B", "`nn.LSTM` step by step", "RIM under plain autograd", "RIM", "`rims-robust`", "24 RIMs / 6",
        "96 RIMs / 6",
    )  # fmt: skip
    return _table(head, rows)


def _options() -> str:
    measured = _read("bench_core")["options"]
    ms, engines = measured["ms"], measured["engines"]
    rows = [(f"`{name}`", engines[name], f"{time / ms['rims']:.1f}") for name, time in ms.items()]
    return _table(("option, or core", "runs in", "time of the paper's"), rows)


def _mechanisms() -> str:
    """Means over seeds of the suite of this name: how often a RIM reads, what is remembered, and for how long."""
    scores: dict[str, dict[str, list[float]]] = {}
    for path in sorted((DOCS / "results/mechanisms").glob("*.json")):
        result = json.loads(path.read_text())
        task, core = re.fullmatch(r"(\w+?)_(?:ppo_)?(.+)_\d+_\w+", path.stem).groups()
        for column, score in _scores_of(task, result):
            scores.setdefault(core, {}).setdefault(column, []).append(score)
    columns = list(scores["rims"])
    cores = sorted(scores, key=lambda core: (core in BASELINES, core))
    rows = [(f"`{core}`", *(_mean(scores[core].get(column, [])) for column in columns)) for core in cores]
    return _table(("core", *columns), rows)


def _scores_of(task: str, result: Any) -> list[tuple[str, float]]:
    if task == "RepeatPreviousEasy":
        return [("RepeatPrevious", result["evaluation"]["mean"])]
    if task == "Recall":
        variants = result["evaluation"]["variants"]
        return [(f"Recall, {name}", variants[name]["success"]) for name in ("known", "long400", "loud")]
    measure = {"switching": "explained", "adding": "within 0.04", "copying": "accuracy"}[task]
    return [(f"{task}, {test}", found[measure]) for test, found in result["tests"].items() if test in SHOWN]


def _mean(numbers: list[float]) -> str:
    return f"{sum(numbers) / len(numbers):.2f} ({len(numbers)})" if numbers else ""


def _update() -> str:
    result = _read("bench_update")
    update, forward = result["update_ms"], result["forward_ms"]
    rows = [
        (
            name,
            f"{update[name] / 1e3:.1f}",
            f"{update['stock'] / update[name]:.1f}",
            f"{forward[name]:.1f}",
            f"{forward['stock'] / forward[name]:.1f}",
        )
        for name in update
    ]
    return _table(("", "update, s", "x stock", "forward, ms", "x stock"), rows)


def _tricks() -> str:
    """What each trick of explanation/speed.md brings, measured beside the same without it."""
    core, updates, train = _read("bench_core"), _read("bench_update"), _read("bench_train")["agents"]
    update, kept = updates["update_ms"], updates["freed_memory_kept_ms"]
    short, step = core["sequences"][0]["ms"], core["steps"][0]["ms"]
    rollout = {name: agent["rollout_ms"] for name, agent in train.items()}
    rows = [
        ("whole sequences", "LSTM, 128 x 2", short["stepped"] / short["fused"]),
        ("a backward written by hand", "RIMs, 128 x 2", short["autograd"] / short["torch loops"]),
        ("loops in C", "RIMs, 128 x 2", short["torch loops"] / short["rim 6/4"]),
        ("sleepers cost little", "24 RIMs beside 6; at most 4", 4 * short["rim 6/4"] / short["rim 24/4"]),
        ("one memory for actor and critic", "update, LSTM", update["stock"] / update["stock, shared"]),
        ("ALE's vector environment, and less around it", "rollout, LSTM", rollout["stock"] / rollout["ours, lstm"]),
        ("weights at rest", "one step of RIMs", step["rim 6/4"] / step["rim 6/4, at rest"]),
        ("freed memory is kept", "update, RIMs", update["ours, rims"] / kept["ours, rims"]),
        ("bfloat16 in the encoder", "update, RIMs", update["ours, rims"] / update["ours, rims, bf16"]),
    ]
    rows.sort(key=lambda row: -row[2])
    return _table(("trick", "measured on", "times faster"), [(*words, f"{factor:.1f}") for *words, factor in rows])


def _supervised() -> str:
    short, long = (case["sequences_per_second"] for case in _read("bench_supervised")["cases"])
    rows = [(f"`{core}`", f"{speed:.0f}", f"{long[core]:.0f}") for core, speed in short.items()]
    return _table(("core", "span 50", "span 200"), rows)


def _exported() -> str:
    rows = [(case["batch"], *(f"{us:.0f}" for us in case["us"].values())) for case in _read("bench_export")["cases"]]
    return _table(("batch", "torch", "onnx", "pt2"), rows)


def _stability() -> str:
    result = _read("bench_stability")
    rows = []
    for core in dict.fromkeys(case["core"] for case in result["cases"]):
        cases = [case["largest_state"] for case in result["cases"] if case["core"] == core]
        rows.append((f"`{core}`", *(", ".join(map(_state, sorted(states, key=_beyond))) for states in cases)))
    rates = dict.fromkeys(f"{case['learning_rate']:g}" for case in result["cases"])
    return _table(("core", *(f"learning rate {rate}" for rate in rates)), rows)


def _beyond(state: float | None) -> float:
    return math.inf if state is None else state


def _state(state: float | None) -> str:
    return "NaN" if state is None else f"{state:.2g}"


TABLES: dict[str, Callable[[], str]] = {
    "bench_train": lambda: _training("bench_train", ceilings=True),
    "bench_train_parts": lambda: _where_the_time_goes("bench_train"),
    "bench_train_in_short": _in_short,
    "bench_train_PickupKnown": lambda: _training("bench_train_PickupKnown", ceilings=False),
    "bench_train_PickupKnown_parts": lambda: _where_the_time_goes("bench_train_PickupKnown"),
    "bench_core": _layer,
    "bench_core_options": _options,
    "mechanisms": _mechanisms,
    "bench_update": _update,
    "tricks": _tricks,
    "bench_supervised": _supervised,
    "bench_export": _exported,
    "bench_stability": _stability,
}


def main(check: bool) -> int:
    """Write all tables anew, or name those that are stale; how many they are."""
    stale = 0
    for page in PAGES:
        text = page.read_text()
        for place in PLACE.finditer(text):
            if place["table"] != TABLES[place["name"]]():
                stale += 1
                print(f"{page.name}: the table {place['name']} is stale" + ("; `make tables`" if check else ""))
        if not check:
            page.write_text(PLACE.sub(lambda place: place["name"] + place["open"] + TABLES[place["name"]](), text))
    return stale


if __name__ == "__main__":
    stale = main("--check" in sys.argv)
    sys.exit(stale if "--check" in sys.argv else 0)
