"""What the terminal shows of a supervised training in this process: a bar."""

from __future__ import annotations

import math
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rims_rl.supervised.training import Training, Watcher


class TrainingDisplay(Watcher):
    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        columns = [
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn(
                "{task.completed:,.0f} / {task.total:,.0f}  {task.fields[rate]:.1f}/s  loss {task.fields[loss]:.4f}"
            ),
            TimeRemainingColumn(),
        ]
        self._progress = Progress(*columns, console=self.console)

    def on_begin(self, training: Training) -> None:
        self._first, self._begun = training.done, time.monotonic()
        config = training.task.config
        name = f"{config.core}, seed {training.seed}"
        self._bar = self._progress.add_task(name, total=config.iterations, rate=0.0, loss=math.nan)
        self._progress.start()

    def on_iteration(self, training: Training) -> None:
        rate = (training.done - self._first) / max(time.monotonic() - self._begun, 1e-9)
        loss = training.losses[-1] if training.losses else training.curve[-1][1]
        self._progress.update(self._bar, completed=training.done, rate=rate, loss=loss)

    def on_stop(self) -> None:
        print("stopping after this iteration; once more to stop at once", file=sys.stderr)

    def on_end(self) -> None:
        self._progress.stop()
