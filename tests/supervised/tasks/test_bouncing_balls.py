"""Bouncing balls: clips, rolling out, and RIMs that see strips."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rims_rl.common.errors import UserError
from rims_rl.supervised.frame_networks import frame_losses, roll_out
from rims_rl.supervised.job import SupervisedJob
from rims_rl.supervised.task import load
from rims_rl.supervised.task_figures import figures
from rims_rl.supervised.task_page import read_groups
from rims_rl.supervised.tasks.bouncing_balls import KINDS, BouncingBalls, clips, correlation
from tests.helpers.verbs import user_error


@pytest.mark.parametrize("kind", KINDS)
def test_clips_are_seeded_and_binary(kind):
    one, same, other = (clips(kind, 3, 6, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert one.shape == (6, 3, 64, 64) and set(one.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(one[0], one[-1])


def test_six_to_eight_balls_and_a_curtain_that_stays():
    areas = clips("six-eight", 40, 1, np.random.default_rng(0)).sum((0, 2, 3))
    assert areas.min() > 6 * 80 and areas.max() < 8 * 140 and areas.max() - areas.min() > 150
    hidden = clips("curtain", 2, 200, np.random.default_rng(1)).amax(0)
    assert ((hidden == 0).sum((1, 2)) >= 28 * 28).all()


TINY = ["hidden_size=24", "frames=8", "fed=3", "batch_size=2"]


def test_rolling_out_sees_true_frames_first_and_then_its_own():
    torch.manual_seed(0)
    task = BouncingBalls(load(BouncingBalls, TINY))
    network, (frames,) = task.network().eval(), task.batch(0, 0)
    with torch.no_grad():
        logits = roll_out(network, frames, 3)
        assert logits.shape == (7, 2, 64, 64)
        changed = torch.cat([frames[:3], 1 - frames[3:]])
        assert torch.equal(logits, roll_out(network, changed, 3))
        by_hand = network(torch.cat([frames[:3], torch.sigmoid(logits[2:6])]))[0]
    torch.testing.assert_close(logits, by_hand, atol=1e-4, rtol=1e-4)


def test_frame_losses_by_hand():
    logits, frames = torch.zeros(1, 1, 2, 2), torch.tensor([[[[1.0, 0], [0, 1]]]])
    torch.testing.assert_close(frame_losses(logits, frames), 4 * torch.log(torch.tensor([[2.0]])))


def test_tests_and_record_cover_every_kind():
    task = BouncingBalls(load(BouncingBalls, [*TINY, "test_sequences=2", "test_balls=[four,curtain]"]))
    with torch.no_grad():
        network = task.network().eval()
        found, record = task.tests(network, 3), task.record(network)
    assert list(found) == ["four", "curtain"] and len(found["four"]) == 3
    assert list(record["film"]) == ["four", "four, predicted", "curtain", "curtain, predicted"]
    assert all(len(row) == 2 and len(row[0]) == 32 * 32 for row in record["film"].values())  # frames 1 and 5


def test_nothing_to_roll_out_is_one_sentence():
    with pytest.raises(UserError, match="fed must be less than frames - 1 = 7, got 7"):
        BouncingBalls(load(BouncingBalls, [*TINY, "fed=7"])).network()


def test_each_rim_sees_its_own_strip():
    torch.manual_seed(0)
    settings = [*TINY, "test_sequences=2", "strips=true", "core_kwargs={own_elements: true}"]
    task = BouncingBalls(load(BouncingBalls, settings))
    network, (frames,) = task.network().eval(), task.batch(0, 0)
    with torch.no_grad():
        elements = network.encoder(frames[0])
        changed = frames[0].clone()
        changed[:, 11:21] = 1  # rows of the second of six strips
        differ = (network.encoder(changed) != elements).any(-1)
        record = task.record(network)
    assert elements.shape == (2, 6, 512) and (differ == torch.tensor([False, True, False, False, False, False])).all()
    assert len(record["active"]) == len(record["correlation"]) == 6 and len(record["active"][0]) == 7
    with user_error(r"strips=true needs RIMs .* --set core_kwargs.own_elements=true"):
        BouncingBalls(load(BouncingBalls, [*TINY, "strips=true"])).network()


def test_how_rims_follow_their_strips_is_kept_over_training_and_drawn(tmp_path):
    settings = ["strips=true", "core_kwargs={own_elements: true}", "iterations=2", "test_every=1", "test_sequences=2"]
    job = SupervisedJob(BouncingBalls, load(BouncingBalls, [*TINY, "test_balls=[four]", *settings]), 0, workers=0)
    job.run(tmp_path / job.name, tmp_path / "bouncing_balls", threads=1)
    groups = read_groups(BouncingBalls, tmp_path)
    ((result,),) = groups.values()
    saved = load_file(tmp_path / job.name / "network.safetensors")
    assert saved["decoder.7.weight"].shape == (32, 64, 4, 4)  # in whatever order it was in memory
    assert result["on_the_way"][-1]["correlation"] == pytest.approx(result["record"]["correlation"], abs=1e-5)
    (axes,) = figures(BouncingBalls, groups)["correlation"].axes
    assert len(axes.lines) == 6 and axes.lines[0].get_xdata().tolist() == [1, 2]


def test_correlation_by_hand():
    assert correlation(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 1.0])) == pytest.approx(-1)
    assert correlation(torch.tensor([0.0, 0, 1, 1]), torch.tensor([0.0, 1, 0, 1])) == 0
    assert correlation(torch.ones(3), torch.arange(3)) == 0
