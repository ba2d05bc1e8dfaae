"""``0.monitor.csv``: every finished episode."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

from rims_rl.agents.callbacks.base import TrainingCallback
from rims_rl.common.files import cut


class Monitoring(TrainingCallback):
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
