"""Scalars for TensorBoard in one file, which a resumed run goes on with."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import KVWriter
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from rims_rl.files import cut


class TensorBoardFile(KVWriter):
    """An output format for Stable-Baselines3's logger: numbers only, written at once.

    Its own ``TensorBoardOutputFormat`` begins a new file whenever it is made, and writes from a thread, which would
    learn of a full disk too late to stop training.

    Args:
        folder: of the file, which is the only one there.
        size: how many bytes of it to keep and go on after.
    """

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
        path = next(folder.glob("events.out.tfevents.*"), new)
        cut(path, size)
        self._file = path.open("ab")
        self._records = RecordWriter(self._file)
        if self._file.tell() == 0:
            self._add(Event(file_version="brain.Event:2"))

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        numbers = {key: value for key, value in key_values.items() if "tensorboard" not in (key_excluded[key] or ())}
        values = [Summary.Value(tag=key, simple_value=float(value)) for key, value in sorted(numbers.items())]
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
