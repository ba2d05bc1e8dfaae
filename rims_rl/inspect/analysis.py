"""What recordings say about RIMs, in numbers and pictures, runs side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import write_json
from rims_rl.common.rim_pictures import draw_information, draw_raster, draw_switches, draw_usage
from rims_rl.core.rims.life import measures
from rims_rl.inspect.information import WHAT, measure_information, switches
from rims_rl.runs.provenance import provenance

LAGS = np.arange(-6, 7)
SHOWN = 400  # steps of the raster: more would be too narrow to see
FEW = 10  # times that an event must begin to be drawn


class Recorded:
    """What is wanted of one recording."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.header: dict[str, Any] = json.loads(str(arrays["about"]))
            self.active, self.starts, events = arrays["active"], arrays["episode_starts"], arrays["events"]
            self.attention, self.communication = arrays["input_attention"], arrays["communication"]
            self.largest_state = arrays["largest_state"].max(0)
        happened = dict(zip(self.header["events"], events.T, strict=True))
        happened["after reward"] = np.roll(happened["reward"], 1) & ~self.starts
        # what always or never happens tells nothing
        self.events = {name: each for name, each in happened.items() if each.any() and not each.all()}
        self.usage = self.active.mean(0)
        header = self.header
        self.name = f"{header['run']}\n{header['env']['name']}"
        if header["drop"] or header["force"]:
            self.name += f", drop {header['drop']}, force {header['force']}"


def write_pictures(recordings: Sequence[Path], folder: Path) -> None:
    """``statistics.json`` and four pictures of ``recordings`` in ``folder``."""
    started = time.time()
    all_ = [Recorded(path) for path in recordings]
    results = [_statistics(one) for one in all_]
    try:
        write_json(folder / "statistics.json", {"what": WHAT, "runs": results, **provenance(started)})
        for name, figure in (
            ("activity", _raster(all_)),
            ("usage", _usage(all_)),
            ("switches", _switches(all_, results)),
            ("information", _information(all_, results)),
        ):
            save_figure(figure, folder / f"{name}.png")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from error


def _statistics(one: Recorded) -> dict[str, Any]:
    names = list(one.events)
    happened = np.zeros((len(one.active), len(names)), bool)
    for column, name in enumerate(names):
        happened[:, column] = one.events[name]
    tested = measure_information(one.active, happened, one.starts)
    switched = (one.active[1:] != one.active[:-1])[~one.starts[1:]]
    begins = {name: switches(one.active, happened, one.starts, LAGS) for name, happened in one.events.items()}
    kept = ("run", "env", "steps", "num_rims", "num_active", "deterministic", "evaluation_seed", "drop", "force")
    return {
        **{key: one.header[key] for key in kept},
        "recorded_steps": len(one.active),
        "scores": [episode["score"] for episode in one.header["episodes"] if episode["score"] is not None],
        "usage": one.usage.tolist(),
        **_life(one),
        "switching_rate": (switched.sum(0) / max(1, len(switched))).tolist(),
        "steps_with_event": {name: int(happened.sum()) for name, happened in one.events.items()},
        "lags": LAGS.tolist(),
        "switches": {
            name: {"begins": count, "change": [[None if np.isnan(x) else float(x) for x in row] for row in changes]}
            for name, (count, changes) in begins.items()
        },
        "information": {
            **tested, **{key: dict(zip(names, tested[key], strict=True)) for key in ("bits", "p", "p_holm")}
        },
    }  # fmt: skip


def _life(one: Recorded) -> dict[str, Any]:
    """How alive the RIMs are, see docs/how-to/inspect.md."""
    inside = (torch.as_tensor(array) for array in (one.active, one.attention, one.communication))
    return measures(*inside) | {"largest_state": one.largest_state.tolist()}


def _raster(all_: list[Recorded]) -> Figure:
    figure = Figure(figsize=(11, 3.6 * len(all_)), layout="constrained")
    for axes, one in zip(np.ravel(figure.subplots(len(all_), squeeze=False)), all_, strict=True):
        shown = {name: events[:SHOWN] for name, events in one.events.items() if name != "after reward"}
        draw_raster(axes, one.active[:SHOWN], one.starts[:SHOWN], shown)
        axes.set_title(
            f"{one.name}: active RIMs, the first {min(SHOWN, len(one.active))} of {len(one.active):,} steps",
            fontsize=10,
        )
    return figure


def _usage(all_: list[Recorded]) -> Figure:
    figure = Figure(figsize=(4.5 * len(all_), 3.8), layout="constrained")
    for axes, one in zip(np.ravel(figure.subplots(1, len(all_), squeeze=False)), all_, strict=True):
        draw_usage(axes, one.usage, one.header["num_active"])
        axes.set_title(f"{one.name}, {len(one.active):,} steps", fontsize=10)
    return figure


def _switches(all_: list[Recorded], results: list[dict[str, Any]]) -> Figure:
    """A row for each recording, a column for each event; an event that is too rare leaves its place empty."""
    often = [{name for name, one in result["switches"].items() if one["begins"] >= FEW} for result in results]
    names = [name for name in dict.fromkeys(name for one in all_ for name in one.events) if name in set().union(*often)]
    figure = Figure(figsize=(2 + 3.2 * max(1, len(names)), 3.2 * len(all_)), layout="constrained")
    grid = figure.subplots(len(all_), max(1, len(names)), squeeze=False)
    image = None
    for axes in grid.flat:
        axes.set_axis_off()
    for row, one, result, drawn in zip(grid, all_, results, often, strict=True):
        for axes, name in zip(row, names, strict=False):
            if name in drawn:
                axes.set_axis_on()
                image = draw_switches(axes, np.array(result["switches"][name]["change"], float), LAGS)
                axes.set_title(f"{name}, {result['switches'][name]['begins']:,} times", fontsize=10)
        row[0].set_ylabel(f"{one.name}\nRIM", fontsize=9)
    if image is not None:
        figure.colorbar(image, ax=grid, label="active, minus just before")
    return figure


def _information(all_: list[Recorded], results: list[dict[str, Any]]) -> Figure:
    tables = [np.array(list(result["information"]["bits"].values())) for result in results]
    most = max([0.01, *(bits for table in tables for bits in table.flat)])
    rows = max(len(table) for table in tables)
    figure = Figure(figsize=(2 + 5 * len(all_), 1.6 + 0.5 * rows), layout="constrained")
    grid = figure.subplots(1, len(all_), squeeze=False)
    image = None
    for axes, one, result, table in zip(grid[0], all_, results, tables, strict=True):
        tested = result["information"]
        if len(table):
            image = draw_information(axes, table, list(tested["p_holm"].values()), list(tested["bits"]), most)
        else:
            axes.set_axis_off()
        note = f"* p < 0.05 after Holm, {tested['tests']} tests, {tested['unit']}" if len(table) else "no event"
        axes.set_title(f"{one.name}\n{note}", fontsize=9)
    if image is not None:
        figure.colorbar(image, ax=grid, label="bits between activity and event")
    return figure
