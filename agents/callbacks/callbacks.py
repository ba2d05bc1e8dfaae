"""What happens while an agent trains: a progress bar, records of episodes, evaluations, logs and checkpoints.

What happens every so many steps follows from the number of steps alone, so that it is the same in a resumed run.
"""

from __future__ import annotations

import csv
import json
import logging
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
from stable_baselines3.common.logger import Image
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv, sync_envs_normalization
from torch import Tensor

from rims_rl.agents.algorithms.ppo import RecurrentPPO
from rims_rl.agents.callbacks.tensorboard import Counts
from rims_rl.agents.policies.rims_policies import DIVERGED
from rims_rl.agents.saved.checkpoints import seed_at, start_games_again
from rims_rl.agents.saved.policy_files import read_about, save_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import cut, replacing
from rims_rl.core import RIM

log = logging.getLogger(__name__)


class _Callback(BaseCallback):
    model: RecurrentPPO

    def _on_step(self) -> bool:
        return True


class ProgressBar(_Callback):
    """Steps, steps per second, the mean score of the last 100 episodes, and the time that is left."""

    def __init__(self, total: int, shown: bool) -> None:
        super().__init__()
        self._total = total
        columns = [
            BarColumn(24),
            TextColumn("{task.completed:>10,.0f} / {task.total:,.0f} steps"),
            TextColumn("{task.fields[rate]:5.0f}/s  score {task.fields[score]}"),
            TimeRemainingColumn(),
        ]
        self._progress = Progress(*columns, disable=not shown)

    def _on_training_start(self) -> None:
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

    def close(self) -> None:
        self._progress.stop()


class Monitoring(_Callback):
    """Writes score, length and time of every finished episode, in the format of Stable-Baselines3's Monitor.

    Args:
        path: of the file.
        size: how many bytes of it to keep and go on after.
        env_id: Gymnasium's name of the environment.
        begun: when training began, had it never been interrupted.
    """

    def __init__(self, path: Path, size: int, env_id: str, begun: float) -> None:
        super().__init__()
        self._begun = begun
        cut(path, size)
        self._file = path.open("a", newline="")
        self._writer = csv.writer(self._file)
        if self._file.tell() == 0:
            self._file.write("#" + json.dumps({"t_start": begun, "env_id": env_id}) + "\n")
            self._writer.writerow(["r", "l", "t"])

    @property
    def size(self) -> int:
        self._file.flush()
        return os.fstat(self._file.fileno()).st_size

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                episode = info["episode"]
                self._writer.writerow([episode["r"], episode["l"], round(time.time() - self._begun, 6)])
        return True

    def _on_rollout_end(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Evaluation(_Callback):
    """Plays whole episodes every ``freq`` steps, writes ``evaluations.npz``, and keeps the best policy in ``best/``.

    Games and sampled actions follow from ``seed`` and the number of steps, and training's own generators stay as they
    are, so that training is the same with other evaluations or with none.
    """

    def __init__(
        self,
        envs: VecEnv,
        freq: int,
        episodes: int,
        deterministic: bool,
        seed: int,
        run: Path,
        policy_kwargs: dict[str, Any],
        about: Callable[[], dict[str, Any]],
    ) -> None:
        super().__init__()
        self._envs, self._freq, self._episodes, self._deterministic = envs, freq, episodes, deterministic
        self._seed, self._run, self._policy_kwargs, self._about = seed, run, policy_kwargs, about
        self.history: dict[str, list[Any]] = {"timesteps": [], "results": [], "ep_lengths": []}
        self._best = -np.inf

    def resume(self, history: dict[str, list[Any]]) -> None:
        """Go on after the evaluations of ``history``; the best policy so far is the one on disk."""
        self.history = {name: list(history[name]) for name in self.history}
        try:
            self._best = float(read_about(self._run / "best")["score"])
        except (UserError, KeyError):
            self._best = -np.inf
        if self.history["timesteps"]:
            self._write()
        else:
            (self._run / "evaluations.npz").unlink(missing_ok=True)

    def _on_rollout_end(self) -> None:
        """Between a rollout and its update, so that evaluations never change what is trained on."""
        if not due(self.model, self._freq):
            return
        if self.model.get_vec_normalize_env() is not None:
            sync_envs_normalization(self.training_env, self._envs)
        steps = self.model.num_timesteps
        seed = seed_at(self._seed, steps, purpose=1)
        self._envs.seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            scores, lengths = evaluate_policy(
                self.model, self._envs, self._episodes, self._deterministic, return_episode_rewards=True, warn=False
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
            save_policy(policy, self._run / "best", self._policy_kwargs, **self._about(), score=mean)

    def _write(self) -> None:
        with replacing(self._run / "evaluations.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **self.history)


class KeptPolicies(_Callback):
    """Keeps the policy in ``<folder>/<steps>`` at the beginning and about every ``freq`` steps, to be played later."""

    def __init__(
        self, freq: int, folder: Path, policy_kwargs: dict[str, Any], about: Callable[[], dict[str, Any]]
    ) -> None:
        super().__init__()
        self._freq, self._folder, self._policy_kwargs, self._about = freq, folder, policy_kwargs, about

    def _on_rollout_start(self) -> None:
        if due(self.model, self._freq):
            policy: Any = self.model.policy
            save_policy(policy, self._folder / str(self.model.num_timesteps), self._policy_kwargs, **self._about())


class Logging(_Callback):
    """Every ``interval`` rollouts: adds how RIMs are used, and writes all that was recorded to TensorBoard.

    Says it once if the state of the RIMs, which nothing bounds, has grown beyond all measure.
    """

    def __init__(self, interval: int) -> None:
        super().__init__()
        self._interval = interval
        self.notes: list[str] = []

    def _on_rollout_end(self) -> None:
        if due(self.model, self._interval * rollout_size(self.model)):
            largest = record_rim_statistics(self.model)
            if largest > DIVERGED and not self.notes:
                self.notes.append(
                    f"the memory diverges: its largest value is {largest:.0e} after {self.model.num_timesteps:,} "
                    "steps; it may help to set normalize=true, critic=separate or a smaller learning_rate"
                )
                log.info("note: %s", self.notes[0])
            self.model.dump_logs()


class Stopped(Exception):
    """Training was asked to stop, and did."""


class Checkpoints(_Callback):
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


def rollout_size(model: RecurrentPPO) -> int:
    return model.n_steps * model.n_envs


def due(model: RecurrentPPO, freq: int) -> bool:
    """Whether the last rollout passed a multiple of ``freq`` steps; also true before the first."""
    steps = model.num_timesteps
    return freq > 0 and steps // freq > (steps - rollout_size(model)) // freq


def record_rim_statistics(model: RecurrentPPO) -> float:
    """How often each RIM is active, how often activity switches, the entropy of input attention, and the largest value
    in the state, which it returns (0 without RIMs)."""
    if not isinstance(model.policy.core, RIM):
        return 0.0
    active, attention, _ = _look_inside(model)
    model.logger.record("rims/usage", Counts(active.sum(0).tolist()))
    for k, share in enumerate(active.float().mean(0).tolist()):
        model.logger.record(f"rims/active_{k}", share)
    entropy = -(attention * attention.clamp_min(1e-12).log()).sum(-1).mean()
    model.logger.record("rims/attention_entropy", entropy.item())
    model.logger.record("rims/switching_rate", active.float().diff(dim=0).abs().mean().item())
    states: Any = model._last_lstm_states
    largest = max(part.abs().max().item() for part in (*states.pi, *states.vf))
    model.logger.record("rims/largest_state", largest)
    return largest


def write_raster(model: RecurrentPPO) -> None:
    """Which RIMs were active at each step, as a picture. At once: a checkpoint keeps only numbers for later."""
    if not isinstance(model.policy.core, RIM):
        return
    from rims_rl.common.rim_pictures import raster_image  # it takes a second to import, and only evaluations want it

    active, _, starts = _look_inside(model)
    picture = Image(raster_image(active.numpy(), starts.numpy() != 0), "HWC")
    for output in model.logger.output_formats:
        output.write({"rims/activity": picture}, {"rims/activity": ()}, model.num_timesteps)


def _look_inside(model: RecurrentPPO) -> tuple[Tensor, Tensor, Tensor]:
    """Of one environment's part of the rollout, run through the core once more: who was active (T, K), input attention
    (T, K, N + 1), and episode starts (T)."""
    policy: Any = model.policy
    buffer: Any = model.rollout_buffer
    observations = buffer.observations
    first = {k: v[:, 0] for k, v in observations.items()} if isinstance(observations, dict) else observations[:, 0]
    state = tuple(part[:, :1] for part in buffer.states[0].pi)
    starts = torch.as_tensor(buffer.episode_starts[:, 0], device=policy.device)
    with torch.no_grad(), policy.core.trace() as trace:
        obs = obs_as_tensor(first, policy.device)
        policy.run_core(policy.encode(obs), state, starts)
    return trace.active[:, 0].cpu(), trace.input_attention[:, 0].cpu(), starts.cpu()
