"""Cores over seeds: rliable's numbers against those that one computes by hand."""

import itertools

import numpy as np
import pytest
from rliable import metrics
from rliable.library import get_interval_estimates

from rims_rl.common.errors import UserError
from rims_rl.common.statistics import stratified_interval
from rims_rl.evaluation.compare import (
    NOVEL,
    check_comparable,
    compare_runs,
    interquartile_mean,
    probability_of_improvement,
)

ENV = {"name": "PickupKnown", "observation": "symbolic"}


def result(core, number, known, *novel, **others):
    """What ``play_variants`` gives for a run with these success rates."""
    rates = {"known": known, **{f"novel-{i}": rate for i, rate in enumerate(novel)}}
    variants = {
        name: {"success": rate, "return": 0.0, "drop": None if name == "known" else known - rate}
        for name, rate in rates.items()
    }
    about = {"run": f"{core}_{number}", "env": ENV, "core": core, "algo": "ppo", "seed": number, "steps": 10}
    return {**about, "parameters": 5, "policy_kwargs": {}, "variants": variants, "notes": [], **others}


def test_the_interquartile_mean_leaves_out_a_quarter_of_the_seeds_at_each_end():
    rates = [0.0, 0.5, 0.6, 1.0]
    (group,) = compare_runs([result("rims", seed, rate) for seed, rate in enumerate(rates)])["groups"].values()
    assert group["variants"]["known"]["iqm"] == pytest.approx((0.5 + 0.6) / 2)
    assert group["variants"]["known"]["drop_iqm"] is None
    assert group["seeds"] == [0, 1, 2, 3] and group["parameters"] == 5
    five = [result("rims", seed, rate) for seed, rate in enumerate([0.1, 0.2, 0.3, 0.4, 0.9])]
    (group,) = compare_runs(five)["groups"].values()  # a quarter of five is one
    assert group["variants"]["known"]["iqm"] == pytest.approx((0.2 + 0.3 + 0.4) / 3)


def test_intervals_are_those_of_all_samples_that_can_be_drawn():
    rates = [0.1, 0.2, 0.6, 0.7]
    (group,) = compare_runs([result("rims", seed, rate) for seed, rate in enumerate(rates)])["groups"].values()
    every = [np.mean(sorted(sample)[1:3]) for sample in itertools.product(rates, repeat=4)]
    expected = np.percentile(every, [2.5, 97.5])
    assert group["variants"]["known"]["iqm_95"] == pytest.approx(expected, abs=0.051)


def test_the_novel_mean_is_taken_of_each_run_first():
    """Two variants whose differences cancel in every run: the seeds agree, so the interval has no width."""
    runs = [result("rims", seed, 0.9, 0.5 + x, 0.5 - x) for seed, x in enumerate([0.4, -0.3, 0.2, -0.1])]
    (group,) = compare_runs(runs)["groups"].values()
    novel = group["variants"][NOVEL]
    assert novel["iqm"] == pytest.approx(0.5) and novel["iqm_95"] == pytest.approx([0.5, 0.5])
    assert novel["drop_iqm"] == pytest.approx(0.4) and novel["drop_iqm_95"] == pytest.approx([0.4, 0.4])
    assert np.diff(group["variants"]["novel-0"]["iqm_95"]) > 0.2


def test_the_cost_of_novelty_is_measured_against_the_matched_controls():
    def played(core, number, **rates):
        rates = {name.replace("_", "-"): rate for name, rate in rates.items()}
        variants = {name: {"success": rate, "return": 0.0, "drop": None} for name, rate in rates.items()}
        return result(core, number, 0.9) | {"variants": variants}

    def four(control, colour, shape):
        return {
            "known": 0.1, "control_colour": control, "novel_colour": colour, "control_shape": 0.8, "novel_shape": shape
        }  # fmt: skip

    runs = [played("rims", 0, **four(0.9, 0.8, 0.7)), played("rims", 1, **four(1.0, 0.7, 0.9))]  # 0.1, 0.1
    runs += [played("lstm", 0, **four(0.9, 0.7, 0.4)), played("lstm", 1, **four(0.4, 0.4, 0.7))]  # 0.3, 0.05
    compared = compare_runs(runs)
    rims, lstm = compared["groups"].values()
    assert rims["novelty_cost"] == {"iqm": pytest.approx(0.1), "iqm_95": pytest.approx([0.1, 0.1])}
    assert lstm["novelty_cost"]["iqm"] == pytest.approx(0.175)
    (pair,) = compared["improvement"]
    assert pair["novelty_cost"]["probability"] == 0.5  # rims lose less than one of the two LSTMs
    one = compare_runs([played("rims", 0, known=0.9, control_shape=0.9, novel_shape=0.8, novel_colour=0.1)])
    assert one["groups"]["rims"]["novelty_cost"]["iqm"] == pytest.approx(0.1)
    assert "novelty_cost" not in compare_runs([played("rims", 0, known=0.9, novel_shape=0.8)])["groups"]["rims"]


def test_the_probability_of_improvement_counts_pairs_of_seeds():
    a, b = [0.1, 0.4, 0.6], [0.0, 0.4, 0.5]  # 1 + 1.5 + 3 of 9 pairs; a draw counts half
    runs = [result("rims", seed, rate) for seed, rate in enumerate(a)]
    runs += [result("lstm", seed, rate) for seed, rate in enumerate(b)]
    (pair,) = compare_runs(runs)["improvement"]
    assert (pair["of"], pair["over"]) == ("rims", "lstm")
    assert pair["variants"]["known"]["probability"] == pytest.approx(5.5 / 9)
    low, high = pair["variants"]["known"]["probability_95"]
    assert low < 0.2 and high == pytest.approx(1)
    better = [result("rims", seed, 0.5 + rate) for seed, rate in enumerate(a)]
    (pair,) = compare_runs(better + runs[3:])["improvement"]
    assert pair["variants"]["known"] == {"probability": 1.0, "probability_95": [1.0, 1.0]}


def test_the_columns_are_what_rliable_gives_for_each():
    a, b = (np.random.default_rng(seed).integers(0, 5, (n, 6)) / 5 for seed, n in ((0, 5), (1, 7)))
    pairs = [metrics.probability_of_improvement(a[:, [j]], b[:, [j]]) for j in range(6)]
    np.testing.assert_allclose(probability_of_improvement(a, b), pairs)
    np.testing.assert_allclose(interquartile_mean(b), [metrics.aggregate_iqm(b[:, [j]]) for j in range(6)])


def test_intervals_are_those_of_rliable_but_for_chance():
    a, b = (np.random.default_rng(seed).random((n, 3)) for seed, n in ((0, 6), (1, 8)))
    for function, tables in ((interquartile_mean, [a]), (probability_of_improvement, [a, b])):
        ours = stratified_interval(function, *tables)
        _, theirs = get_interval_estimates({"": tables[0] if len(tables) == 1 else tables}, function, reps=4000)
        np.testing.assert_allclose(ours, theirs[""], atol=0.06)
        assert np.array_equal(ours, stratified_interval(function, *tables))


def test_the_same_runs_give_the_same_numbers_and_leave_numpy_as_it_was():
    runs = [result(core, seed, rate) for core in ("rims", "gru") for seed, rate in enumerate([0.1, 0.5, 0.8])]
    np.random.seed(7)
    first = compare_runs(runs)
    drawn = np.random.rand()
    np.random.seed(7)
    assert drawn == np.random.rand() and compare_runs(runs) == first


def test_one_seed_has_no_interval_and_steps_that_differ_are_told():
    compared = compare_runs([result("rims", 0, 0.5, steps=1000), result("lstm", 0, 0.4)])
    assert compared["groups"]["rims"]["variants"]["known"]["iqm_95"] is None
    assert compared["improvement"][0]["variants"]["known"] == {"probability": 1.0, "probability_95": None}
    assert compared["notes"] == ["runs were trained for different numbers of steps, from 10 to 1,000"]


def test_algorithms_are_apart():
    compared = compare_runs([result("rims", 0, 0.5), result("rims", 0, 0.4, algo="a2c")])
    assert list(compared["groups"]) == ["rims, ppo", "rims, a2c"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": {**ENV, "observation": "rgb"}}, "observation is 'symbolic' in rims_0 and 'rgb' in rims_1"),
        ({"env": {**ENV, "name": "Pong"}}, "must be of one environment, but name is 'PickupKnown' in rims_0"),
        ({"policy_kwargs": {"rim_size": 4}}, "but rim_size is None in one and 4 in the other; evaluate them apart"),
        ({"seed": 0}, "both are seed 0 of core rims and algorithm ppo; each seed counts once"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(change, words):
    with pytest.raises(UserError, match=words):
        check_comparable([result("rims", 0, 0.5), result("rims", 1, 0.5, **change)])
