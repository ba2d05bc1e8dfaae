"""Numbers over seeds with their intervals, which the pages of suites share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import trim_mean  # type: ignore[import-untyped]

from rims_rl.common.statistics import stratified_interval
from rims_rl.evaluation import compare


class Estimate(NamedTuple):
    value: float
    low: float | None = None  # there is none for a single seed
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.2f}" if self.low is None else f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    @property
    def leaves_out_a_half(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0.5 <= self.high


def estimate(function: Callable[..., np.ndarray], *scores: np.ndarray) -> Estimate:
    """What ``function`` makes of ``scores``, each (seeds, tasks), with its 95 % stratified bootstrap interval."""
    value = function(*scores)[0]
    if min(len(each) for each in scores) < 2:
        return Estimate(value)
    return Estimate(value, *stratified_interval(function, *scores)[:, 0])


def mean(scores: np.ndarray) -> np.ndarray:
    """Of all seeds of all tasks together."""
    return np.array([scores.mean()])


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Likewise, of the middle half."""
    return np.array([trim_mean(scores, 0.25, axis=None)])


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How often a seed of the first beats one of the second, averaged over tasks."""
    return np.array([compare.probability_of_improvement(scores, others).mean()])
