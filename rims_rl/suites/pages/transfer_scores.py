"""What transfer is measured by, as in Rusu et al. (2016), with intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_ind  # type: ignore[import-untyped]

Curve = Sequence[dict[str, float]]
POINTS = 100  # at which curves are read
BEGINNING = 0.1  # of training, for the jump-start
VERDICTS = ("positive", "neutral", "negative", "unknown")


class Difference(NamedTuple):
    """The mean over seeds with transfer minus that from scratch, with Welch's 95 % interval, which takes into account
    that there are few seeds. There is none for a single seed."""

    value: float
    low: float | None
    high: float | None


class Measures(NamedTuple):
    """Transfer to one target."""

    score: float | None  # (area - random) / (area from scratch - random); None if scratch is not better than random
    score_95: list[float] | None
    verdict: str
    area: Difference
    jump_start: Difference
    final: Difference
    seeds: tuple[int, int]


class Run(NamedTuple):
    """What counts of one training run."""

    area: float
    start: float
    final: float


def measure_run(result: dict[str, Any]) -> Run | None:
    """From a job's result: the mean score over training, that over its beginning, and that of the last policy. None if
    no episode has ended."""
    if not result["curve"]:
        return None
    heights = curve_heights(result["curve"])
    first = round(BEGINNING * POINTS)
    return Run(float(heights.mean()), float(heights[:first].mean()), result["evaluation"]["mean"])


def curve_heights(curve: Curve) -> np.ndarray:
    """The scores of a learning curve at equal distances; before its first point, that of the first.

    Its points know only the steps of episodes that have ended. So that those of the others, which may be many of them,
    do not all come at the end, the curve is stretched: its last point is the end of training."""
    middle = (np.arange(POINTS) + 0.5) * curve[-1]["steps"] / POINTS
    return np.interp(middle, [point["steps"] for point in curve], [point["mean"] for point in curve])


def mean_run(runs: Sequence[Run]) -> Run:
    """One seed with several sources counts once."""
    return Run(*(float(np.mean(values)) for values in zip(*runs, strict=True)))


def measure(transfers: Sequence[Run], scratches: Sequence[Run], random: float) -> Measures:
    """One run for each seed. The verdict is that of the area: positive if its interval is above zero, negative if it is
    below, else neutral; so a positive one has a score above 1 with its whole interval."""
    area, start, final = (_difference(*pair) for pair in zip(_columns(transfers), _columns(scratches), strict=True))
    height = float(np.mean([run.area for run in scratches])) - random
    score = 1 + area.value / height if height > 0 else None
    if area.low is None or area.high is None:
        interval, verdict = None, "unknown"
    else:
        interval = [1 + bound / height for bound in (area.low, area.high)] if height > 0 else None
        verdict = "positive" if area.low > 0 else "negative" if area.high < 0 else "neutral"
    return Measures(score, interval, verdict, area, start, final, (len(transfers), len(scratches)))


def _columns(runs: Sequence[Run]) -> list[np.ndarray]:
    return [np.array(values) for values in zip(*runs, strict=True)]


def _difference(a: np.ndarray, b: np.ndarray) -> Difference:
    value = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Difference(value, None, None)
    if a.std() == b.std() == 0:  # Welch's interval has no width then, and scipy gives NaN
        return Difference(value, value, value)
    bounds = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return Difference(value, float(bounds.low), float(bounds.high))
