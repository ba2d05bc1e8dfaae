"""How training goes, in the terminal: a bar, or lines where the output is a file."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rims_rl.agents.callbacks.base import TrainingCallback

SECONDS_BETWEEN_LINES = 30


class ProgressBar(TrainingCallback):
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
        self._lines = shown and not self._progress.console.is_terminal  # which shows a bar only when all is done

    def _on_training_start(self) -> None:
        self._bar = self._progress.add_task("", total=self._total, rate=0.0, score="-")
        self._begun, self._first = time.time(), self.model.num_timesteps
        self._last_line = self._begun
        self._progress.start()

    def _on_step(self) -> bool:
        steps = self.model.num_timesteps
        rate = (steps - self._first) / max(time.time() - self._begun, 1e-9)
        scores = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        score = f"{np.mean(scores):.1f}" if scores else "-"
        self._progress.update(self._bar, completed=min(steps, self._total), rate=rate, score=score)
        if self._lines and time.time() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.time()
            left = timedelta(seconds=round(max(0, self._total - steps) / rate))
            text = f"{steps:,} / {self._total:,} steps  {rate:.0f}/s  score {score}  {left} left"
            self._progress.console.print(text, highlight=False, soft_wrap=True)
        return True

    def close(self) -> None:
        self._progress.stop()
