"""Bouncing balls: the physics and the pictures."""

import numpy as np
import pytest

from rims_rl.supervised.data.physics import BOX, Balls, draw, draw_velocities, place, simulate


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
