"""Evaluations while an agent trains, and the best policy so far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, sync_envs_normalization

from rims_rl.agents.callbacks.base import TrainingCallback, due
from rims_rl.agents.callbacks.rim_statistics import write_raster
from rims_rl.agents.policies.action_masks import with_masks
from rims_rl.agents.saved.checkpoints import seed_at
from rims_rl.agents.saved.description import Description
from rims_rl.agents.saved.policy_files import read_description, save_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing


class Evaluation(TrainingCallback):
    """Plays whole episodes every ``freq`` steps, writes ``evaluations.npz``, and keeps the best policy in ``best/``.

    Games and sampled actions follow from ``seed`` and the number of steps, and training's own generators stay as they
    are, so that training is the same with other evaluations or with none.
    """

    def __init__(
        self,
        envs: VecEnv | None,
        freq: int,
        episodes: int,
        deterministic: bool,
        seed: int,
        run: Path,
        describe: Callable[[], Description],
    ) -> None:
        super().__init__()
        self._envs, self._freq, self._episodes, self._deterministic = envs, freq, episodes, deterministic
        self._seed, self._run, self._describe = seed, run, describe
        self.history: dict[str, list[Any]] = {"timesteps": [], "results": [], "ep_lengths": []}
        self._best = -np.inf
        self.listeners: list[TrainingCallback] = []

    def resume(self, history: dict[str, list[Any]]) -> None:
        """Go on after the evaluations of ``history``; the best policy so far is the one on disk."""
        self.history = {name: list(history[name]) for name in self.history}
        try:
            score = read_description(self._run / "best").score
        except UserError:
            score = None
        self._best = score if isinstance(score, float) else -np.inf
        if self.history["timesteps"]:
            self._write()
        else:
            (self._run / "evaluations.npz").unlink(missing_ok=True)

    def _on_rollout_end(self) -> None:
        """Between a rollout and its update, so that evaluations never change what is trained on."""
        if self._envs is None or not due(self.model, self._freq):
            return
        if self.model.get_vec_normalize_env() is not None:
            sync_envs_normalization(self.training_env, self._envs)
        steps = self.model.num_timesteps
        seed = seed_at(self._seed, steps, purpose=1)
        self._envs.seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            scores, lengths = evaluate_policy(
                with_masks(self.model, self._envs),
                self._envs,
                self._episodes,
                self._deterministic,
                return_episode_rewards=True,
                warn=False,
            )
        assert isinstance(scores, list) and isinstance(lengths, list)
        for name, value in zip(self.history, (steps, scores, lengths), strict=True):
            self.history[name].append(value)
        self._write()
        mean = float(np.mean(scores))
        self.logger.record("eval/mean_reward", mean)
        self.logger.record("eval/mean_ep_length", float(np.mean(lengths)))
        write_raster(self.model)
        if mean > self._best:
            self._best = mean
            policy: Any = self.model.policy
            save_policy(policy, self._run / "best", self._describe().model_copy(update={"score": mean}))
        for listener in self.listeners:
            listener.on_evaluation(steps, mean)

    def _write(self) -> None:
        with replacing(self._run / "evaluations.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **self.history)  # type: ignore[arg-type]  # it takes one of the arrays for an option
