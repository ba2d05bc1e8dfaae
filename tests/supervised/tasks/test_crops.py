"""Video from crops."""

import numpy as np
import pytest
import torch

from rims_rl.common.errors import UserError
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks.crops import SIDE, Crops, clips, confusion, cut, measures
from rims_rl.supervised.training import Training

TINY = ["hidden_size=12", "frames=5", "crops=3", "element_size=8", "batch_size=4", "test_balls=[1,6]"]


def test_a_window_is_what_is_at_its_place():
    pictures = torch.arange(2 * 3 * SIDE * SIDE).view(2, 3, SIDE, SIDE)
    places = torch.from_numpy(np.random.default_rng(0).integers(SIDE - 4, size=(2, 3, 5, 2)))
    windows = cut(pictures, places, 4)
    y, x = places[1, 2, 3].tolist()
    assert torch.equal(windows[1, 2, 3], pictures[1, 2, y : y + 4, x : x + 4].flatten().float())


def test_the_ball_in_the_middle_never_moves_and_others_do():
    pictures = clips(2, 3, 30, np.random.default_rng(0))
    assert pictures[:, :, SIDE // 2, SIDE // 2].all()
    assert (pictures[0] != pictures[-1]).any((1, 2)).all()


def test_more_balls_than_there_is_room_for_is_one_sentence():
    with pytest.raises(UserError, match=r"no room for 40 balls of radius 0\.8"):
        Crops(load(Crops, [*TINY, "balls=40"])).network()


def test_measures_by_hand():
    said = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0]).bool()
    true = torch.tensor([1, 1, 0, 1, 0, 0, 0, 0]).bool()
    counts = confusion(said, true)
    assert counts.tolist() == [2, 1, 1, 4]
    found = measures(*counts.tolist())
    assert found["F1"] == pytest.approx(2 / 3)  # precision 2/3, recall 2/3
    assert found["balanced accuracy"] == pytest.approx((2 / 3 + 4 / 5) / 2)


def test_nothing_found_is_zero_not_an_error():
    assert measures(0, 0, 5, 5) == {"F1": 0.0, "balanced accuracy": 0.5}


@pytest.mark.parametrize("core", ["rims", "lstm"])
def test_rims_read_the_windows_as_a_set_and_others_in_one_vector(core):
    task = Crops(load(Crops, [f"core={core}", *TINY]))
    network = task.network()
    assert network.core.input_size == (8 if core == "rims" else 24)
    task.loss(network, *task.batch(0, 0)).backward()
    assert all(weight.grad is not None for weight in network.parameters())
    with torch.no_grad():
        assert list(task.tests(network.eval(), 5)) == ["1 ball", "6 balls"]


def test_the_learning_rate_is_halved_when_the_loss_stops_falling_and_a_checkpoint_knows(tmp_path):
    task = Crops(load(Crops, [*TINY, "halve_after=3"]))
    training = Training(task, 0, tmp_path)
    rates = []
    for loss in (1.0, 0.9, 0.9, 0.89999, 0.8, 0.8, 0.8, 0.8, 0.8):  # the third and fourth have not fallen by 0.01 %
        training.schedule.step(loss)
        rates.append(training.optimizer.param_groups[0]["lr"] / 7e-4)
    assert rates == [1, 1, 1, 1, 1, 1, 1, 0.5, 0.5]
    training.save()
    resumed = Training(task, 0, tmp_path)
    assert resumed.optimizer.param_groups[0]["lr"] == 3.5e-4
    resumed.schedule.step(0.8)
    resumed.schedule.step(0.8)
    assert resumed.optimizer.param_groups[0]["lr"] == 1.75e-4
    assert Crops(load(Crops, [*TINY, "halve_after=null"])).schedule(training.optimizer) is None


def test_the_oracle_sees_the_frame_it_is_asked_about():
    usual, oracle = (Crops(load(Crops, [*TINY, "core=none", f"oracle={flag}"])) for flag in ("false", "true"))
    pictures = torch.from_numpy(clips(3, 4, 5, np.random.default_rng((0, 0, 0)))).float()
    for task, first in ((usual, 0), (oracle, 1)):
        windows, places, wanted, asked = task.batch(0, 0)
        assert torch.equal(windows, cut(pictures[first : first + 4], places, 11))
        assert torch.equal(wanted, cut(pictures[1:], asked, 11))
