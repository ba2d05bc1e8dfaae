"""Intervals against numbers from print and from hand."""

import numpy as np
import pytest

from rims_rl.common.statistics import mean_difference, rate_difference, wilson


def test_wilson_intervals_are_those_that_were_printed():
    """Newcombe 1998, Statistics in Medicine 17, 857-872, table I, method 3."""
    for successes, trials, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611)):
        assert wilson(successes, trials) == pytest.approx([low, high], abs=5e-5)
    assert wilson(1, 29) == pytest.approx([0.0061, 0.1718], abs=5e-5)


def test_a_rate_of_nought_or_one_still_has_an_interval():
    z2 = 1.959964**2
    for n in (1, 10, 1000):
        assert wilson(0, n) == pytest.approx([0, z2 / (n + z2)], rel=1e-5)  # the formula with p = 0
        assert wilson(n, n) == pytest.approx([n / (n + z2), 1], rel=1e-5)


def test_intervals_of_a_difference_are_those_that_were_printed():
    """Newcombe 1998, Statistics in Medicine 17, 873-890, table II, method 10."""
    for a, m, b, n, low, high in (
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (6, 7, 2, 7, 0.0582, 0.8062),
        (5, 56, 0, 29, -0.0381, 0.1926),
        (0, 10, 0, 20, -0.1611, 0.2775),
        (10, 10, 0, 10, 0.6075, 1.0),
    ):
        assert rate_difference(a, m, b, n) == pytest.approx([low, high], abs=6e-5)


def test_a_difference_of_means_has_the_width_of_the_normal_approximation():
    a, b = np.random.default_rng(0).normal(5, 2, 400), np.random.default_rng(1).normal(3, 1, 300)
    low, high = mean_difference(a, b)
    error = 1.96 * np.hypot(a.std() / 20, b.std() / 300**0.5)
    difference = a.mean() - b.mean()
    assert [low, high] == pytest.approx([difference - error, difference + error], abs=0.1 * error)
    same = np.arange(10.0)
    low, high = mean_difference(same, same)
    assert low < -1 and high > 1, "two samples are drawn apart from one another"
