"""Means, rates and differences with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot
from typing import Any

import numpy as np
from scipy.stats import binomtest, bootstrap  # type: ignore[import-untyped]

RESAMPLES = 10_000


def summary(scores: np.ndarray) -> dict[str, Any]:
    """Mean with a 95 % bootstrap interval, median, and standard deviation."""
    return {
        "mean": float(scores.mean()),
        "mean_95": interval(bootstrap_means(scores)),
        "median": float(np.median(scores)),
        "std": float(scores.std()),
    }


def bootstrap_means(scores: np.ndarray, seed: int = 0) -> np.ndarray:
    """Means of ``scores`` drawn again with replacement, many times."""
    generator, rows = np.random.default_rng(seed), max(1, 100_000 // len(scores))  # at once, which stays in the cache
    pieces = [min(rows, RESAMPLES - begin) for begin in range(0, RESAMPLES, rows)]
    return np.concatenate([generator.choice(scores, (piece, len(scores))).mean(1) for piece in pieces])


def interval(draws: np.ndarray) -> list[float]:
    """The middle 95 % of ``draws``."""
    return [float(bound) for bound in np.percentile(draws, [2.5, 97.5])]


def mean_difference(a: np.ndarray, b: np.ndarray) -> list[float]:
    """Bootstrap interval of the mean of ``a`` minus that of ``b``, which were drawn independently."""
    return interval(bootstrap_means(a, 0) - bootstrap_means(b, 1))


def stratified_interval(function: Callable[..., np.ndarray], *tables: np.ndarray) -> np.ndarray:
    """Of what ``function`` makes of ``tables``, each (seeds, tasks): seeds are drawn again by task (Agarwal et al.,
    "Deep RL at the edge of the statistical precipice", 2021). (2, ...), low and high."""
    widths = [table.shape[1] for table in tables]
    ends = np.cumsum(widths)

    def of_columns(*columns: np.ndarray) -> np.ndarray:
        return function(*(np.stack(columns[end - width : end], 1) for width, end in zip(widths, ends, strict=True)))

    columns = [column for table in tables for column in table.T]
    drawn = bootstrap(columns, of_columns, vectorized=False, method="percentile", n_resamples=2000, rng=0)
    return np.stack(drawn.confidence_interval)


def wilson(successes: int, trials: int) -> list[float]:
    """Wilson's score interval of a rate, which also holds at 0 and 1, where the usual one has no width."""
    bounds = binomtest(successes, trials).proportion_ci(0.95, "wilson")
    return [float(bounds.low), float(bounds.high)]


def rate_difference(successes: int, trials: int, others: int, other_trials: int) -> list[float]:
    """Newcombe's interval (his method 10) of a rate minus another: Wilson's interval for two independent rates."""
    rate, other = successes / trials, others / other_trials
    low, high = wilson(successes, trials)
    other_low, other_high = wilson(others, other_trials)
    difference = rate - other
    return [difference - hypot(rate - low, other_high - other), difference + hypot(high - rate, other - other_low)]
