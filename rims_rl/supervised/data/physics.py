"""Balls that bounce off walls and one another in a square box: exact elastic collisions, and their pictures.

Balls move straight between collisions, so the next one is computed, not stepped over: energy is conserved and balls
never overlap, up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rims_rl.common.errors import UserError

BOX = 10.0  # side of the box; a frame is one unit of time
TRIES = 2000  # to find room for one ball

Array = np.ndarray


class Balls(NamedTuple):
    """S sequences of up to N balls; a ball that a sequence does not have has radius 0 and is nowhere."""

    position: Array  # (S, N, 2)
    velocity: Array  # (S, N, 2)
    radius: Array  # (S, N)
    inverse_mass: Array  # (S, N), 0: cannot be moved


def place(radius: Array, random: np.random.Generator, taken: Array | None = None, taken_radius: float = 0.0) -> Array:
    """Positions (S, N, 2) where balls overlap neither each other, nor a wall, nor a ball at ``taken``."""
    count, number = radius.shape
    position = np.full((count, number, 2), np.inf)
    for ball in range(number):
        left = np.flatnonzero(radius[:, ball] > 0)
        for _ in range(TRIES):
            if not len(left):
                break
            margin = radius[left, ball, None]
            tried = margin + random.random((len(left), 2)) * (BOX - 2 * margin)
            gap = np.linalg.norm(position[left, :ball] - tried[:, None], axis=-1) - radius[left, :ball] - margin
            fits = (gap > 0).all(1)
            if taken is not None:
                fits &= np.linalg.norm(tried - taken, axis=-1) > taken_radius + margin[:, 0]
            position[left[fits], ball] = tried[fits]
            left = left[~fits]
        else:
            raise UserError(f"there is no room for {number} balls of radius {radius.max():g}; give fewer")
    return position


def draw_velocities(radius: Array, speed: Array | float, random: np.random.Generator) -> Array:
    """Random velocities (S, N, 2) whose norm over all balls of a sequence together is ``speed``."""
    velocity = random.normal(size=(*radius.shape, 2)) * (radius > 0)[..., None]
    norm = np.sqrt((velocity**2).sum((1, 2), keepdims=True))
    return np.asarray(velocity * np.reshape(speed, (-1, 1, 1)) / norm)


def simulate(balls: Balls, frames: int) -> tuple[Array, Array]:
    """Positions and velocities (frames, S, N, 2), the given ones first."""
    position, velocity = balls.position.copy(), balls.velocity.copy()
    positions, velocities = [position.copy()], [velocity.copy()]
    for _ in range(frames - 1):
        _advance(position, velocity, balls)
        positions.append(position.copy())
        velocities.append(velocity.copy())
    return np.stack(positions), np.stack(velocities)


def _advance(position: Array, velocity: Array, balls: Balls) -> None:
    """One frame, in place."""
    first, second = np.triu_indices(position.shape[1], 1)
    busy = np.arange(len(position))  # sequences that have not reached the end of the frame
    left = np.ones(len(position))
    while len(busy):
        x, v, r, w = position[busy], velocity[busy], balls.radius[busy], balls.inverse_mass[busy]
        walls = _wall_times(x, v, r)
        pairs = _pair_times(x, v, r, first, second)
        times = np.concatenate([walls.reshape(len(busy), -1), pairs], 1)
        event = times.argmin(1)
        soonest = np.take_along_axis(times, event[:, None], 1)[:, 0]
        step = np.minimum(soonest, left[busy])
        x = x + v * step[:, None, None]
        hits = soonest < left[busy]
        for row in np.flatnonzero(hits):
            _collide(x[row], v[row], w[row], int(event[row]), walls[row].size, first, second)
        position[busy], velocity[busy] = x, v
        left[busy] -= step
        busy = busy[hits]


def _wall_times(x: Array, v: Array, r: Array) -> Array:
    """When each ball reaches the wall it flies to, in each direction, (S, N, 2)."""
    wall = np.where(v > 0, BOX - r[..., None], r[..., None])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(v == 0, np.inf, np.maximum((wall - x) / v, 0.0))


def _pair_times(x: Array, v: Array, r: Array, first: Array, second: Array) -> Array:
    """When the balls of each pair touch, (S, pairs); never, if they do not come closer."""
    present = (r[:, first] > 0) & (r[:, second] > 0)
    with np.errstate(invalid="ignore"):  # of balls that are nowhere
        apart = np.where(present[..., None], x[:, first] - x[:, second], 0.0)
    closing = v[:, first] - v[:, second]
    a, b = (closing**2).sum(-1), (apart * closing).sum(-1)
    c = (apart**2).sum(-1) - (r[:, first] + r[:, second]) ** 2
    inside = b**2 - a * c
    meet = present & (b < 0) & (inside > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(meet, np.maximum((-b - np.sqrt(np.where(meet, inside, 0.0))) / a, 0.0), np.inf)


def _collide(x: Array, v: Array, w: Array, event: int, walls: int, first: Array, second: Array) -> None:
    """Change the velocities (N, 2) of one sequence, in place."""
    if event < walls:
        v.flat[event] *= -1
        return
    i, j = first[event - walls], second[event - walls]
    normal = (x[i] - x[j]) / np.linalg.norm(x[i] - x[j])
    impulse = 2 * ((v[i] - v[j]) @ normal) / (w[i] + w[j])
    v[i] -= impulse * w[i] * normal
    v[j] += impulse * w[j] * normal


def draw(positions: Array, radius: Array, side: int) -> Array:
    """Pictures (frames, S, side, side) of bool: True where the centre of a pixel is inside a ball."""
    centres = ((np.arange(side) + 0.5) * (BOX / side)).astype(np.float32)
    pictures = np.zeros((*positions.shape[:2], side, side), bool)
    squared = (radius**2).astype(np.float32)
    for picture, position in zip(pictures, positions.astype(np.float32), strict=True):  # one frame stays in the cache
        for ball in range(radius.shape[1]):
            x2, y2 = ((centres - position[:, ball, axis, None]) ** 2 for axis in (0, 1))  # (S, side)
            picture |= y2[:, :, None] + x2[:, None, :] < squared[:, ball, None, None]
    return pictures
