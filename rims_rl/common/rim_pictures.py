"""Pictures of what RIMs do. The functions that draw take plain arrays, and draw into axes that they are given."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure


def rim_colours(count: int) -> list[tuple[float, float, float]]:
    """One for each RIM, around the colour wheel, as red, green and blue between 0 and 1."""
    return [colorsys.hls_to_rgb((k / count + 0.62) % 1, 0.58, 0.6) for k in range(count)]


def draw_raster(
    axes: Axes, active: np.ndarray, starts: np.ndarray | None = None, events: dict[str, np.ndarray] | None = None
) -> None:
    """Steps from left to right, a row for each RIM, coloured where it is active.

    Args:
        active: (T, K) bool.
        starts: (T) bool, steps before which the memory was reset: vertical lines.
        events: (T) bool by name: a row of ticks for each, below the RIMs.
    """
    steps, count = active.shape
    events = events or {}
    cells = np.where(active, np.arange(1, count + 1), 0).T
    axes.imshow(
        cells,
        ListedColormap([(0.95, 0.95, 0.94), *rim_colours(count)]),
        vmin=0,
        vmax=count,
        aspect="auto",
        interpolation="nearest",
        extent=(0, steps, count - 0.5, -0.5),
    )
    for row, happened in enumerate(events.values(), count):
        axes.broken_barh([(int(at), 1) for at in np.flatnonzero(happened)], (row - 0.3, 0.6), color="0.35", lw=0)
    for step in np.flatnonzero(starts)[1:] if starts is not None else ():
        axes.axvline(step, color="black", lw=0.6, ls=(0, (3, 3)))
    axes.set_yticks(range(count + len(events)), [*(f"RIM {k}" for k in range(count)), *events])
    axes.set_ylim(count + len(events) - 0.5, -0.5)
    axes.set(xlabel="step", xlim=(0, steps))
    for row in range(1, count):
        axes.axhline(row - 0.5, color="white", lw=1.5)


def raster_image(active: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """:func:`draw_raster` as (height, width, 3) bytes."""
    figure = Figure(figsize=(9, 0.9 + 0.3 * active.shape[1]), dpi=80, layout="constrained")
    draw_raster(figure.subplots(), active, starts)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def draw_usage(axes: Axes, usage: np.ndarray, num_active: int) -> None:
    """How often each RIM is active; dashed: if all were active equally often."""
    count = len(usage)
    axes.bar(range(count), usage, color=rim_colours(count))
    axes.axhline(num_active / count, color="black", ls="--", lw=1)
    axes.set(xlabel="RIM", ylabel="share of steps at which it is active", ylim=(0, 1))
    axes.set_xticks(range(count))


def draw_switches(axes: Axes, changes: np.ndarray, lags: np.ndarray) -> Any:
    """Before and after an event begins, how much more often than just before it each RIM is active. Returns what a
    colour bar needs.

    Args:
        changes: (lags, K), of :func:`rims_rl.inspect.information.switches`.
        lags: steps after the event begins.
    """
    count = changes.shape[1]
    extent = (lags[0] - 0.5, lags[-1] + 0.5, count - 0.5, -0.5)
    image = axes.imshow(changes.T, "RdBu_r", vmin=-0.5, vmax=0.5, aspect="auto", extent=extent)
    axes.axvline(-0.5, color="black", lw=1)
    axes.set(xlabel="steps after it begins", ylabel="RIM", yticks=range(count), xticks=lags[::2])
    return image


def draw_information(
    axes: Axes, bits: np.ndarray, p: Sequence[Sequence[float | None]], names: Sequence[str], most: float
) -> Any:
    """A cell for each event and RIM, bold with a star where p is below 0.05. Returns what a colour bar needs.

    Args:
        bits: (E, K), and ``p`` likewise: None where nothing could be tested.
        names: of the events.
        most: bits of the strongest colour.
    """
    image = axes.imshow(bits, "Greens", vmin=0, vmax=most, aspect="auto")
    for row, column in np.ndindex(*bits.shape):
        chance = p[row][column]
        real = chance is not None and chance < 0.05
        text = "-" if chance is None else f"{bits[row, column]:.3f}{'*' if real else ''}"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=9, weight="bold" if real else "normal",
            color="white" if bits[row, column] > 0.6 * most else "black",
        )  # fmt: skip
    axes.set_xticks(range(bits.shape[1]))
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="RIM")
    return image
