"""Episodes that somebody plays, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from rims_rl.envs.pictures import Pictured

Actor = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]  # observations, pictures, starts -> actions
Report = Callable[[int], None]  # how many steps have been played since the last call


class Watched(NamedTuple):
    """Steps one after the other, of one or several episodes."""

    pictures: np.ndarray  # (steps, side, side, 3) bytes
    actions: np.ndarray  # (steps, size) of a Box, (steps,) of Discrete; those of the expert, whoever played
    starts: np.ndarray  # (steps,) whether an episode begins there


class Played(NamedTuple):
    scores: list[float]  # of whole episodes
    lengths: list[int]
    watched: Watched | None = None  # if it was asked for


def _as_they_are(envs: Any) -> Any:
    return envs


def _to_nobody(steps: int) -> None:
    pass


def play(
    pictured: Pictured,
    actor: Actor,
    episodes: int,
    prepare: Callable[[Any], Any] = _as_they_are,
    expert: Actor | None = None,
    watch: bool = False,
    report: Report = _to_nobody,
) -> Played:
    """So many whole episodes, each copy its share of them.

    Args:
        pictured: the copies; ``prepare`` puts around them what an expert needs.
        actor: who plays.
        expert: whose actions are kept instead of the actor's, if it is asked what it would do.
        watch: keep pictures and actions.
    """
    envs = prepare(pictured.envs)
    with torch.random.fork_rng(), torch.no_grad():
        observations = envs.reset()
        count = envs.num_envs
        starts = np.ones(count, bool)
        left = np.array([(episodes + copy) // count for copy in range(count)])  # as evaluate_policy shares them out
        scores, lengths = list[float](), list[int]()
        kept: list[list[tuple[np.ndarray, np.ndarray, bool]]] = [[] for _ in range(count)]
        while left.any():
            pictures = pictured.pictures()
            actions = actor(observations, pictures, starts)
            wanted = actions if expert is None else expert(observations, pictures, starts)
            if watch:
                for copy in np.flatnonzero(left):
                    kept[copy].append((pictures[copy], wanted[copy], bool(starts[copy])))
            observations, _, starts, infos = envs.step(actions)
            for copy in np.flatnonzero(left):
                if "episode" in infos[copy]:
                    scores.append(float(infos[copy]["episode"]["r"]))
                    lengths.append(int(infos[copy]["episode"]["l"]))
                    left[copy] -= 1
            report(count)
    return Played(scores, lengths, _join(kept) if watch else None)


def _join(kept: list[list[tuple[np.ndarray, np.ndarray, bool]]]) -> Watched:
    steps = [step for copy in kept for step in copy]
    pictures, actions, starts = (np.stack([step[part] for step in steps]) for part in range(3))
    return Watched(pictures, actions, starts)
