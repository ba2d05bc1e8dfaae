"""A picture of what networks see: an expert as it is, and with noise in its joints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from rims_rl.common.figures import save_figure
from rims_rl.envs.names import Resolved
from rims_rl.envs.pictures import Pictured
from rims_rl.imitation.expert import Expert, ExpertActor

SHOWN, EVERY = 10, 10  # pictures in a row, and steps between them


def draw_frames(expert: Expert, tests: dict[str, Resolved], seed: int, side: int, path: Path) -> None:
    """One row for each test, of the first steps of an episode with ``seed``."""
    figure = Figure(figsize=(SHOWN, 1.15 * len(tests)), layout="constrained")
    rows = figure.subplots(len(tests), 1, squeeze=False)[:, 0]
    for axes, (name, env) in zip(rows, tests.items(), strict=True):
        axes.imshow(np.concatenate(_episode(expert, env, seed, side), 1), interpolation="nearest")
        axes.set(xticks=[], yticks=[], ylabel=name)
    save_figure(figure, path)


def _episode(expert: Expert, env: Resolved, seed: int, side: int) -> list[np.ndarray]:
    pictured = Pictured(env, 1, seed, side)
    try:
        envs, found = expert.prepared(pictured.envs), []
        actor = ExpertActor(expert, pictured.envs, seed)
        observations, starts = envs.reset(), np.ones(1, bool)
        for step in range(SHOWN * EVERY):
            pictures = pictured.pictures()
            if step % EVERY == 0:
                found.append(pictures[0])
            observations, _, starts, _ = envs.step(actor(observations, pictures, starts))
        return found
    finally:
        pictured.close()
