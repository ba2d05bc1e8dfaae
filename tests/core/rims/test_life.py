"""Measures of life, against what one computes by hand."""

import math

import pytest
import torch

from rims_rl.core.rims.life import alignment, collapse, entropy, switching, usage, worst_usage


def test_equal_work_is_no_collapse_and_one_worker_is():
    equal = torch.eye(4).repeat(5, 1).bool().view(5, 4, 4)
    assert usage(equal).tolist() == [0.25] * 4 and collapse(equal) == worst_usage(equal) == 0
    one = torch.zeros(5, 3, 4, dtype=torch.bool)
    one[..., 2] = True
    assert collapse(one) == pytest.approx(1) and worst_usage(one) == 1
    assert collapse(one[..., 2:3]) == 0, "one RIM cannot share"
    assert collapse(torch.zeros(5, 3, 4)) == 0


def test_the_numbers_are_those_of_the_formulas():
    active = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1]]).unsqueeze(1).bool()
    p = [4 / 7, 2 / 7, 1 / 7]
    assert usage(active).tolist() == [1, 0.5, 0.25]
    assert collapse(active) == pytest.approx(3 / 2 * sum(max(1 / 3 - share, 0) for share in p))
    assert worst_usage(active) == pytest.approx(1 - 3 / 7)
    assert switching(active) == pytest.approx((1 + 1 + 2) / 9) and switching(active[:1]) == 0


def test_entropy_is_that_of_rows_on_average():
    rows = torch.tensor([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    assert entropy(rows) == pytest.approx(math.log(4) / 2) and entropy(rows[:0]) == 0


def test_a_rim_for_each_rule_is_alignment():
    rules = torch.randint(0, 3, (50, 8), generator=torch.Generator().manual_seed(0))
    own = torch.nn.functional.one_hot((rules + 1) % 3, 4).bool()
    assert alignment(own, rules) == pytest.approx(1)
    always = torch.ones(50, 8, 4, dtype=torch.bool)
    assert alignment(always, rules) == 0
    half = torch.nn.functional.one_hot(rules, 4).bool() & (torch.arange(4) < 2)
    assert alignment(half, rules) == pytest.approx(2 / 3), "the third rule has none"
    assert alignment(own[..., :2], rules) < 1 and alignment(own, torch.zeros_like(rules)) == 0
    random = torch.rand(50, 8, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    assert abs(alignment(random, rules)) < 0.2
