"""Checkpoints, and policies that are kept on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rims_rl.agents.callbacks.base import TrainingCallback, due
from rims_rl.agents.saved.checkpoints import start_games_again
from rims_rl.agents.saved.description import Description
from rims_rl.agents.saved.policy_files import save_policy


class Stopped(Exception):
    """Training was asked to stop, and did."""


class Checkpoints(TrainingCallback):
    """Says when to save: at the beginning, about every ``freq`` steps, at the end, and when asked to stop.

    Args:
        save: writes a checkpoint.
        freq: in steps; the checkpoint is written between two rollouts.
        seed: of the run.
        exact: start all games again after each checkpoint, as a resumed run must do. What comes after a checkpoint then
            follows from it. Where training is stopped must not matter either, so no checkpoint is written there.
        newest: the steps of the checkpoint that is resumed from.
    """

    def __init__(self, save: Callable[[], None], freq: int, seed: int, exact: bool, newest: int | None) -> None:
        super().__init__()
        self._write, self._freq, self._seed, self._exact = save, freq, seed, exact
        self.newest = newest
        self.stop = False

    def _on_rollout_start(self) -> None:
        new = due(self.model, self._freq) and self.newest != self.model.num_timesteps
        if new or (self.stop and not self._exact):
            self._save()
        if self.stop:
            raise Stopped
        if new and self._exact:
            start_games_again(self.model, self._seed)

    def _on_training_end(self) -> None:
        self._save()

    def _save(self) -> None:
        if self.newest != self.model.num_timesteps:
            self._write()
            self.newest = self.model.num_timesteps


class KeptPolicies(TrainingCallback):
    """Keeps the policy in ``<folder>/<steps>`` at the beginning and about every ``freq`` steps, to be played later."""

    def __init__(self, freq: int, folder: Path, describe: Callable[[], Description]) -> None:
        super().__init__()
        self._freq, self._folder, self._describe = freq, folder, describe

    def _on_rollout_start(self) -> None:
        if due(self.model, self._freq):
            policy: Any = self.model.policy
            save_policy(policy, self._folder / str(self.model.num_timesteps), self._describe())
