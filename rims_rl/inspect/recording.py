"""The file of a recording: a ``.npz`` that grows while a game is played. docs/how-to/inspect.md lists its arrays."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing

LOSSLESS = [cv2.IMWRITE_WEBP_QUALITY, 101]  # OpenCV takes any quality above 100 for lossless


@contextmanager
def write_recording(out: Path, header: dict[str, Any]) -> Iterator[Recorder]:
    """A recorder whose steps are in ``out`` afterwards, which gets its name when it is whole.

    ``header`` goes into the file as JSON, called ``about``, and may be filled in until the end.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder, ExitStack() as files:
            recorder = Recorder(Path(folder), files)
            yield recorder
            with replacing(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                with archive.open("about.npy", "w") as member:
                    np.lib.format.write_array(member, np.array(json.dumps(header)), allow_pickle=False)
                for name, array in recorder.arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        array.copy_to(member)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from error


class Recorder:
    """Appends steps to files, one for each array, so that memory does not grow with the length of a game."""

    def __init__(self, folder: Path, files: ExitStack) -> None:
        self.arrays: dict[str, _Growing] = {}
        self._folder, self._files = folder, files

    def add(self, frame: np.ndarray, **values: Any) -> None:
        """One step: its picture, (height, width, 3) bytes, and one value for each array, the same names every time."""
        _, picture = cv2.imencode(".webp", np.ascontiguousarray(frame[..., ::-1]), LOSSLESS)
        self._append("frames", picture)
        self._append("frame_ends", np.array([self.arrays["frames"].length]))
        for name, value in values.items():
            self._append(name, np.asarray(value)[None])

    def _append(self, name: str, rows: np.ndarray) -> None:
        if name not in self.arrays:
            file = self._files.enter_context((self._folder / name).open("w+b"))
            self.arrays[name] = _Growing(file, rows.dtype, rows.shape[1:])
        self.arrays[name].append(rows)


class _Growing:
    """An array in a file, to which rows are added."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.length = 0
        self._file, self._dtype, self._shape = file, dtype, shape

    def append(self, rows: np.ndarray) -> None:
        assert rows.dtype == self._dtype and rows.shape[1:] == self._shape
        self._file.write(rows.tobytes())
        self.length += len(rows)

    def copy_to(self, member: Any) -> None:
        """Write it in NumPy's format, whose header says how long it became."""
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.length, *self._shape)}
        np.lib.format.write_array_header_1_0(member, header)
        self._file.seek(0)
        shutil.copyfileobj(self._file, member)
