"""Bouncing balls: the physics, the pictures, and the task."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rims_rl.common.errors import UserError
from rims_rl.supervised.data.physics import BOX, Balls, draw, draw_velocities, place, simulate
from rims_rl.supervised.frame_networks import frame_losses, roll_out
from rims_rl.supervised.task import load
from rims_rl.supervised.task_figures import figures
from rims_rl.supervised.task_page import read_groups
from rims_rl.supervised.tasks.bouncing_balls import KINDS, BouncingBalls, clips, correlation
from rims_rl.supervised.training import Job, run_job


def some_balls(count=8, number=8, speed=2.0):
    """Faster than in the task, so that they meet often; the last sequences have fewer balls."""
    random = np.random.default_rng(0)
    radius = np.where(random.random((count, number)) < 0.5, 0.8, 1.0)
    radius[count // 2 :, number // 2 :] = 0
    mass = np.where(radius == 1.0, 6.0, 1.0)
    return Balls(place(radius, random), draw_velocities(radius, speed, random), radius, 1 / mass)


def test_energy_is_conserved_while_velocities_change():
    balls = some_balls()
    _, velocity = simulate(balls, 200)
    energy = ((velocity**2).sum(-1) / balls.inverse_mass).sum(-1)  # (frames, S)
    np.testing.assert_allclose(energy, np.broadcast_to(energy[0], energy.shape), rtol=1e-9)
    assert not np.allclose(velocity[0], velocity[-1]) and not np.allclose(abs(velocity[0]), abs(velocity[-1]))


def test_balls_never_overlap_and_never_leave_the_box():
    balls = some_balls()
    position, _ = simulate(balls, 200)
    there = balls.radius > 0
    for a in range(8):
        both = there & there[:, a : a + 1]
        both[:, a] = False
        with np.errstate(invalid="ignore"):  # of balls that are nowhere
            distance = np.linalg.norm(position - position[:, :, a : a + 1], axis=-1)
        touching = balls.radius + balls.radius[:, a : a + 1]
        assert ((distance - touching)[:, both] > -1e-9).all()
    inside = np.minimum(position, BOX - position).min(-1) - balls.radius
    assert (inside[:, there] > -1e-9).all()


def test_a_head_on_collision_by_hand():
    """A light ball at speed 1 meets a resting one of six times its mass: -5/7 and 2/7 afterwards."""
    position, velocity = np.array([[[2.0, 5.0], [6.0, 5.0]]]), np.array([[[1.0, 0.0], [0.0, 0.0]]])
    balls = Balls(position, velocity, np.array([[1.0, 1.0]]), np.array([[1.0, 1 / 6]]))
    position, velocity = simulate(balls, 4)  # they touch after 2 frames
    np.testing.assert_allclose(velocity[-1, 0], [[-5 / 7, 0], [2 / 7, 0]], atol=1e-12)
    np.testing.assert_allclose(position[-1, 0], [[4 - 5 / 7, 5], [6 + 2 / 7, 5]], atol=1e-12)


def test_a_ball_that_cannot_be_moved_stays():
    position, velocity = np.array([[[2.0, 5.0], [6.0, 5.0]]]), np.array([[[1.0, 0.0], [0.0, 0.0]]])
    _, velocity = simulate(Balls(position, velocity, np.ones((1, 2)), np.array([[1.0, 0.0]])), 4)
    np.testing.assert_allclose(velocity[-1, 0], [[-1, 0], [0, 0]], atol=1e-12)


def test_joint_speed_is_the_norm_over_all_balls():
    velocity = draw_velocities(some_balls().radius, 1 / 3, np.random.default_rng(0))
    np.testing.assert_allclose(np.sqrt((velocity**2).sum((1, 2))), 1 / 3)


def test_pictures_show_discs_where_the_balls_are():
    picture = draw(np.array([[[[2.5, 7.5]]]]), np.array([[1.0]]), 64)[0, 0]
    rows, columns = np.nonzero(picture)
    assert (columns.mean() + 0.5) * 10 / 64 == pytest.approx(2.5) and (rows.mean() + 0.5) * 10 / 64 == pytest.approx(
        7.5
    )
    assert picture.sum() == pytest.approx(np.pi * 6.4**2, rel=0.05)


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
    with pytest.raises(UserError, match=r"strips=true needs RIMs .* --set core_kwargs.own_elements=true"):
        BouncingBalls(load(BouncingBalls, [*TINY, "strips=true"])).network()


def test_how_rims_follow_their_strips_is_kept_over_training_and_drawn(tmp_path):
    settings = ["strips=true", "core_kwargs={own_elements: true}", "iterations=2", "test_every=1", "test_sequences=2"]
    job = Job(BouncingBalls, load(BouncingBalls, [*TINY, "test_balls=[four]", *settings]), 0)
    run_job(job, tmp_path, tmp_path, None, workers=0)
    groups = read_groups(BouncingBalls, tmp_path)
    ((result,),) = groups.values()
    saved = load_file(tmp_path / "supervised/bouncing_balls" / job.name / "network.safetensors")
    assert saved["decoder.7.weight"].shape == (32, 64, 4, 4)  # in whatever order it was in memory
    assert result["on_the_way"][-1]["correlation"] == pytest.approx(result["record"]["correlation"], abs=1e-5)
    (axes,) = figures(BouncingBalls, groups)["correlation"].axes
    assert len(axes.lines) == 6 and axes.lines[0].get_xdata().tolist() == [1, 2]


def test_correlation_by_hand():
    assert correlation(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 1.0])) == pytest.approx(-1)
    assert correlation(torch.tensor([0.0, 0, 1, 1]), torch.tensor([0.0, 1, 0, 1])) == 0
    assert correlation(torch.ones(3), torch.arange(3)) == 0
