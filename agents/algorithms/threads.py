"""How many threads a rollout gets: of little work, several would only wait for one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from stable_baselines3.common.policies import BasePolicy

PER_THREAD = 5_000_000  # multiplications that a second thread is worth waking for
IMAGE = 1_000  # numbers of an observation, beyond which convolutions use each weight many times


@contextmanager
def few_threads(policy: BasePolicy, rows: int) -> Iterator[None]:
    """Inside, torch has no more threads than steps of ``rows`` environments are worth."""
    threads = torch.get_num_threads()
    space = policy.observation_space
    shapes = [part.shape or () for part in getattr(space, "spaces", {"": space}).values()]
    if max(map(math.prod, shapes)) <= IMAGE:
        weights = sum(parameter.numel() for parameter in policy.parameters())
        torch.set_num_threads(min(threads, 1 + rows * weights // PER_THREAD))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
