"""The adding task."""

import pytest
import torch

from rims_rl.common.errors import UserError
from rims_rl.supervised.task import generator, load
from rims_rl.supervised.tasks.adding import Adding, measures, sequences

TINY = ["length=5", "test_lengths=[5,9]", "test_numbers=[2,3]", "hidden_size=12", "embedding_size=4", "batch_size=8"]


def test_the_sum_is_that_of_the_marked_numbers():
    x, total = sequences(50, length=9, numbers=3, random=generator(0))
    assert x.shape == (9, 50, 2) and (x[..., 1].sum(0) == 3).all()
    assert x[..., 0].min() >= 0 and x[..., 0].max() < 1
    torch.testing.assert_close(total, (x[..., 0] * x[..., 1]).sum(0))


def test_every_place_is_marked_equally_often():
    marked = sequences(9000, length=9, numbers=2, random=generator(0))[0][..., 1].sum(1)
    assert (marked - 2000).abs().max() < 200


def test_measures_against_a_case_by_hand():
    found = measures(torch.tensor([1.0, 0.5]), torch.tensor([1.03, 0.9]))
    assert found["mean squared error"] == pytest.approx((0.03**2 + 0.4**2) / 2) and found["within 0.04"] == 0.5


def test_tests_are_of_every_length_and_number():
    task = Adding(load(Adding, TINY))
    found = task.tests(task.network().eval(), 10)
    assert list(found) == ["2 of 5", "2 of 9", "3 of 5", "3 of 9"]
    assert task.loss(task.network(), *task.batch(0, 0)).item() > 0


def test_more_marks_than_numbers_is_one_sentence():
    with pytest.raises(UserError, match="of 5 numbers, 7 cannot be marked"):
        Adding(load(Adding, [*TINY, "numbers=7"])).network()
