"""Mutual information against cases worked out by hand, and a test that holds when there is nothing to find."""

import numpy as np
import pytest
from scipy.stats import binom

from rims_rl.inspect import information
from rims_rl.inspect.information import holm, measure_information, mutual_information, switches

LOG = np.log2


def bits(rim, event):
    return mutual_information(np.array(rim, bool)[:, None], np.array(event, bool)[:, None])[0, 0]


def test_mutual_information_is_what_one_gets_by_hand():
    half = [0, 0, 1, 1]
    assert bits(half, half) == bits(half, [1, 1, 0, 0]) == pytest.approx(1)
    assert bits(half, [0, 1, 0, 1]) == pytest.approx(0) == bits(half, [1, 1, 1, 1]) == bits([0, 0, 0, 0], half)
    # a quarter both, a quarter the event alone, half neither: P(event) = 1/2, P(active) = 1/4
    by_hand = 1 / 4 * LOG(2) + 1 / 4 * LOG(2 / 3) + 1 / 2 * LOG(4 / 3)
    assert bits([1, 0, 0, 0], [1, 1, 0, 0]) == pytest.approx(by_hand)
    # the formula with probabilities, on many steps, RIMs and events
    active, events = np.random.default_rng(0).random((2, 500, 3)) < 0.4
    events[:, 0] |= active[:, 2]
    for e, k in np.ndindex(3, 3):
        expected = 0.0
        for a in (False, True):
            for b in (False, True):
                joint = ((events[:, e] == a) & (active[:, k] == b)).mean()
                if joint:
                    expected += joint * LOG(joint / ((events[:, e] == a).mean() * (active[:, k] == b).mean()))
        assert mutual_information(active, events)[e, k] == pytest.approx(expected)


def test_holm():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, 0.9])), [1, 1])


def chains(generator, steps, count, stay=0.9):
    """Independent tracks that mostly stay as they are, as RIMs and events do."""
    return np.cumsum(generator.random((steps, count)) > stay, 0) + generator.integers(2, size=count) & 1 == 1


@pytest.mark.parametrize("stretches", [3, 30])
def test_where_there_is_nothing_to_find_little_is_found(stretches, monkeypatch):
    """Both ways to rearrange: at most 5 % of pairs, and of whole tables after correction. Shuffled steps would fail."""
    monkeypatch.setattr(information, "PERMUTATIONS", 199)
    generator, trials = np.random.default_rng(1), 120
    found = tables = 0
    for trial in range(trials):
        lengths = generator.integers(100, 150, 3) if stretches == 3 else generator.integers(5, 20, 30)
        starts = np.isin(np.arange(lengths.sum()), np.cumsum(lengths) - lengths)
        activity, events = ([chains(generator, n, 2) for n in lengths] for _ in range(2))
        result = measure_information(np.concatenate(activity), np.concatenate(events), starts, trial)
        assert ("circles" in result["unit"]) == (stretches == 3) and result["tests"] == 4
        found += result["p"][0][0] <= 0.05
        tables += min(min(row) for row in result["p_holm"]) <= 0.05
    bound = binom.ppf(0.999, trials, 0.05)
    assert found <= bound and tables <= bound
    assert found > 0, "nor is it so careful that it never finds anything"


def test_a_rim_that_reacts_is_found_and_first_steps_do_not_count(monkeypatch):
    monkeypatch.setattr(information, "PERMUTATIONS", 999)
    generator, starts = np.random.default_rng(2), np.zeros(1200, bool)
    starts[::30] = True
    active, event = chains(generator, 1200, 3), chains(generator, 1200, 2)
    active[:, 1] = np.where(generator.random(1200) < 0.8, event[:, 0], active[:, 1])
    result = measure_information(active, event, starts)
    corrected = np.array(result["p_holm"])
    assert corrected[0, 1] < 0.01 and np.delete(corrected.ravel(), 1).min() > 0.05
    active[starts], event[starts] = True, True  # nothing of this is seen
    assert measure_information(active, event, starts) == result and result["steps"] == 1160
    constant = measure_information(np.ones((60, 2), bool), event[:60], starts[:60])
    assert constant["tests"] == 0 and constant["p"] == [[None, None]] * 2


def test_switches_compare_with_the_step_before_and_stay_in_one_stretch():
    starts = np.array([1, 0, 0, 0, 1, 0, 0, 0], bool)
    event = np.array([0, 0, 1, 1, 1, 1, 0, 1], bool)  # begins at 2 and 7; at 4 the memory is new
    active = np.array([[0, 1], [0, 1], [1, 1], [1, 0], [0, 0], [0, 0], [0, 1], [1, 1]], bool)
    begins, changes = switches(active, event, starts, np.array([-2, -1, 0, 1, 2]))
    assert begins == 2
    np.testing.assert_array_equal(changes[:4], [[0, -0.5], [0, 0], [1, 0], [1, -1]])
    assert np.isnan(changes[4]).all(), "two steps later another stretch has begun"
