"""What happens while an agent trains: a progress bar, records of episodes, evaluations, and how RIMs are used."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, sync_envs_normalization

from rims_rl.agents.portable import save_policy
from rims_rl.core import RIM


class ProgressBar(BaseCallback):
    """Steps, steps per second, the mean score of the last 100 episodes, and the time that is left."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total

    def _on_training_start(self) -> None:
        columns = [
            BarColumn(24),
            TextColumn("{task.completed:>10,.0f} / {task.total:,.0f} steps"),
            TextColumn("{task.fields[rate]:5.0f}/s  score {task.fields[score]}"),
            TimeRemainingColumn(),
        ]
        self._progress = Progress(*columns)
        self._bar = self._progress.add_task("", total=self._total, rate=0.0, score="-")
        self._begun, self._first = time.time(), self.model.num_timesteps
        self._progress.start()

    def _on_step(self) -> bool:
        steps = self.model.num_timesteps
        rate = (steps - self._first) / max(time.time() - self._begun, 1e-9)
        scores = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        score = f"{np.mean(scores):.1f}" if scores else "-"
        self._progress.update(self._bar, completed=min(steps, self._total), rate=rate, score=score)
        return True

    def _on_training_end(self) -> None:
        self._progress.stop()


class Monitoring(BaseCallback):
    """Writes score, length and time of every finished episode, in the format of Stable-Baselines3's Monitor."""

    def __init__(self, path: Path, env_id: str) -> None:
        super().__init__()
        self._path, self._env_id = path, env_id

    def _on_training_start(self) -> None:
        self._begun = time.time()
        self._file = self._path.open("w", newline="")
        self._file.write("#" + json.dumps({"t_start": self._begun, "env_id": self._env_id}) + "\n")
        self._writer = csv.writer(self._file)
        self._writer.writerow(["r", "l", "t"])

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                episode = info["episode"]
                self._writer.writerow([episode["r"], episode["l"], round(time.time() - self._begun, 6)])
        return True

    def _on_rollout_end(self) -> None:
        self._file.flush()

    def _on_training_end(self) -> None:
        self._file.close()


class Evaluation(BaseCallback):
    """Plays whole episodes every ``freq`` steps, writes ``evaluations.npz``, and keeps the best policy in ``best/``."""

    def __init__(
        self,
        envs: VecEnv,
        freq: int,
        episodes: int,
        deterministic: bool,
        run: Path,
        policy_kwargs: dict[str, Any],
        about: Callable[[], dict[str, Any]],
    ) -> None:
        super().__init__()
        self._envs, self._freq, self._episodes, self._deterministic = envs, freq, episodes, deterministic
        self._run, self._policy_kwargs, self._about = run, policy_kwargs, about
        self._next, self._best = freq, -np.inf
        self._steps: list[int] = []
        self._scores: list[list[float]] = []
        self._lengths: list[list[int]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        """Between a rollout and its update, so that evaluations never change what is trained on."""
        if self._freq <= 0 or self.model.num_timesteps < self._next:
            return
        self._next += self._freq * ((self.model.num_timesteps - self._next) // self._freq + 1)
        if self.model.get_vec_normalize_env() is not None:
            sync_envs_normalization(self.training_env, self._envs)
        scores, lengths = evaluate_policy(
            self.model, self._envs, self._episodes, self._deterministic, return_episode_rewards=True, warn=False
        )
        assert isinstance(scores, list) and isinstance(lengths, list)
        self._steps.append(self.model.num_timesteps)
        self._scores.append(scores)
        self._lengths.append(lengths)
        temporary = self._run / f".evaluations.{os.getpid()}.npz"
        np.savez(temporary, timesteps=self._steps, results=self._scores, ep_lengths=self._lengths)
        os.replace(temporary, self._run / "evaluations.npz")
        mean = float(np.mean(scores))
        self.logger.record("eval/mean_reward", mean)
        self.logger.record("eval/mean_ep_length", float(np.mean(lengths)))
        if mean > self._best:
            self._best = mean
            policy: Any = self.model.policy
            steps = self.model.num_timesteps
            save_policy(policy, self._run / "best", self._policy_kwargs, **self._about(), steps=steps, score=mean)


class RimStatistics(BaseCallback):
    """To TensorBoard: how often each RIM is active, how often activity switches, and the entropy of input attention.

    Measured on one environment's part of each rollout, run through the core once more.
    """

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        policy: Any = self.model.policy
        buffer: Any = getattr(self.model, "rollout_buffer", None)
        if not isinstance(getattr(policy, "core", None), RIM) or not hasattr(buffer, "states"):
            return
        observations = buffer.observations
        first = {k: v[:, 0] for k, v in observations.items()} if isinstance(observations, dict) else observations[:, 0]
        state = tuple(part[:, :1] for part in buffer.states[0].pi)
        starts = torch.as_tensor(buffer.episode_starts[:, 0], device=policy.device)
        with torch.no_grad(), policy.core.trace() as trace:
            obs, _ = policy.obs_to_tensor(first)
            policy._process_sequence(policy._features(obs, policy.pi_features_extractor), state, starts, policy.core)
        active, attention = trace.active[:, 0].float(), trace.input_attention[:, 0]
        for k, share in enumerate(active.mean(0).tolist()):
            self.logger.record(f"rims/active_{k}", share)
        entropy = -(attention * attention.clamp_min(1e-12).log()).sum(-1).mean()
        self.logger.record("rims/attention_entropy", entropy.item())
        self.logger.record("rims/switching_rate", active.diff(dim=0).abs().mean().item())
