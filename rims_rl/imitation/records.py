"""``expert.json``: what learners are compared with."""

from __future__ import annotations

from typing import Any

from rims_rl.runs.records import Provenance


class ExpertRecord(Provenance):
    expert: dict[str, Any]  # name, fingerprint, and the steps that it was trained for
    env: str
    env_options: dict[str, Any]
    trajectories: dict[str, Any]  # seed, steps, scores
    tests: dict[str, dict[str, list[float]]]  # test -> expert or random -> score of each episode
    test_seed: int
    curve: list[list[float]]  # steps and mean return in the expert's own training, as far as its files tell
