"""What TensorBoard shows, in one file, which a resumed run goes on with."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.logger import Image, KVWriter
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]
from torch.utils.tensorboard.summary import histogram_raw, hparams, image

from rims_rl.common.files import cut

METRICS = ("rollout/ep_rew_mean", "eval/mean_reward")  # columns of the tab of hyperparameters


class Counts(NamedTuple):
    """How often each of the numbers 0, 1, ... was there: a histogram."""

    counts: list[int]


class TensorBoardFile(KVWriter):
    """An output format for Stable-Baselines3's logger: numbers, its images, and :class:`Counts`, written at once.

    Its own ``TensorBoardOutputFormat`` begins a new file whenever it is made, and writes from a thread, which would
    learn of a full disk too late to stop training.

    Args:
        folder: of the file, which is the only one there.
        size: how many bytes of it to keep and go on after.
        settings: of the run, for the tab of hyperparameters.
    """

    def __init__(self, folder: Path, size: int, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
        path = next(folder.glob("events.out.tfevents.*"), new)
        cut(path, size)
        self._file = path.open("ab")
        self._records = RecordWriter(self._file)
        if self._file.tell() == 0:
            self._add(Event(file_version="brain.Event:2"))
            texts = {
                key: value if isinstance(value, bool | int | float) else str(value) for key, value in settings.items()
            }
            for summary in hparams(texts, dict.fromkeys(METRICS, 0.0))[:2]:  # the third says that it has ended
                self._add(Event(summary=summary))

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        kept = {key: value for key, value in key_values.items() if "tensorboard" not in (key_excluded[key] or ())}
        values = [part for key, value in sorted(kept.items()) for part in _summary(key, value)]
        self._add(Event(step=step, summary=Summary(value=values)))

    @property
    def size(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
        self._file.flush()


def _summary(key: str, value: Any) -> Any:
    if isinstance(value, Image):
        return image(key, value.image, dataformats=value.dataformats).value
    if isinstance(value, Counts):
        numbers, counts = np.arange(len(value.counts)), np.array(value.counts, float)
        total, squares = (numbers * counts).sum(), (numbers**2 * counts).sum()
        limits = (numbers + 0.5).tolist()
        return histogram_raw(key, -0.5, limits[-1], counts.sum(), total, squares, limits, counts.tolist()).value
    return [Summary.Value(tag=key, simple_value=float(value))]
