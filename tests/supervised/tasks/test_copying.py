"""The copying task."""

import math

import pytest
import torch

from rims_rl.common.errors import UserError
from rims_rl.supervised.task import generator, load
from rims_rl.supervised.tasks.copying import Copying, measures, sequences
from tests.helpers.verbs import user_error

TINY = ["digits=2", "span=3", "test_spans=[3,6]", "hidden_size=12", "embedding_size=4", "batch_size=8"]


def test_digits_come_first_then_blanks_then_the_marker_then_blanks_to_answer_in():
    x, digits = sequences(2, digits=3, span=4, random=generator(0))
    assert x.shape == (3 + 4 + 1 + 3, 2) and torch.equal(x[:3], digits)
    assert (x[3:7] == 0).all() and (x[7] == 9).all() and (x[8:] == 0).all()


def test_digits_are_one_to_eight_and_all_of_them_come_up():
    digits = sequences(1000, 10, 1, generator(0))[1]
    counts = torch.bincount(digits.flatten(), minlength=10)
    assert counts[[0, 9]].sum() == 0 and counts[1:9].min() > 1100  # 1250 expected


def test_batches_follow_from_seed_and_number_alone_and_differ():
    task = Copying(load(Copying, TINY))
    assert torch.equal(task.batch(0, 5)[0], task.batch(0, 5)[0])
    assert not torch.equal(task.batch(0, 5)[0], task.batch(0, 6)[0])
    assert not torch.equal(task.batch(0, 5)[0], task.batch(1, 5)[0])


def test_measures_against_a_case_by_hand():
    # two digits, one sequence: the first right with probability 1/2, the second wrong with 1/4 for the right one
    logits = torch.log(torch.tensor([[[0.25, 0.5, 0.25]], [[0.25, 0.5, 0.25]]]))
    found = measures(logits, torch.tensor([[1], [2]]))
    assert found["cross entropy"] == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert found["accuracy"] == 0.5


def test_loss_is_over_the_last_steps_only():
    task = Copying(load(Copying, TINY))
    network, (x, digits) = task.network().eval(), task.batch(0, 0)
    output, _ = network.core(network.encoder(x))
    by_hand = torch.nn.functional.cross_entropy(network.head(output[-2:]).flatten(0, 1), digits.flatten())
    torch.testing.assert_close(task.loss(network, x, digits), by_hand)


def test_tests_do_not_depend_on_how_they_are_cut():
    torch.manual_seed(0)
    network = Copying(load(Copying, TINY)).network().eval()
    few, many = (Copying(load(Copying, [*TINY, f"batch_size={size}"])).tests(network, 20) for size in (7, 20))
    assert few["span 6"] == pytest.approx(many["span 6"], rel=1e-5)
    assert list(few) == ["span 3", "span 6"]


def test_record_says_who_was_active():
    task = Copying(load(Copying, TINY))
    record = task.record(task.network().eval())
    assert len(record["active"]) == 6 and all(len(rim) == len(record["input"]) == 8 for rim in record["active"])
    assert all(sum(rim[t] == "1" for rim in record["active"]) == 4 for t in range(8))
    lstm = Copying(load(Copying, ["core=lstm", *TINY]))
    assert lstm.record(lstm.network()) == {}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["span=-1"], "--set: span must be greater than or equal to 1, got -1"),
        (["spam=1"], "there is no key 'spam' .*did you mean span"),
        (["hidden_size=13"], "multiple of num_rims=6, got 13; 12 would do"),
        (["core=lstn"], "did you mean 'lstm'"),
        (["core_kwargs.heads=3"], "has no option 'heads'"),
    ],
)
def test_mistakes_get_one_sentence(overrides, words):
    with user_error(words):
        Copying(load(Copying, overrides)).network()


def test_a_core_has_its_own_number_of_layers_unless_another_is_set():
    assert load(Copying).definition()["num_layers"] == 1
    for settings, layers in ((["core=brims"], 2), (["core=brims", "num_layers=3"], 3), (["core=lstm"], 1)):
        task = Copying(load(Copying, [*TINY, "core_kwargs={}", *settings]))
        assert task.config.definition()["num_layers"] == task.network().core.num_layers == layers
    with pytest.raises(UserError, match="num_layers must be at least 2 where layers listen to the one above, got 1"):
        Copying(load(Copying, [*TINY, "core=brims", "num_layers=1"])).network()
    with pytest.raises(UserError, match="num_layers must be greater than or equal to 1, got 0"):
        load(Copying, ["num_layers=0"])
    with pytest.raises(UserError, match=r"core must be one of .*, got 'brim'; did you mean 'brims'"):
        Copying(load(Copying, [*TINY, "core=brim"])).network()
