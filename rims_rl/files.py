"""Files that are never half-written, files that grow, checkpoints, and names that are free."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; afterwards it is renamed to ``path``, or removed if writing failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # or a power failure could leave the new name with nothing in it
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def cut(path: Path, size: int) -> None:
    """Keep the first ``size`` bytes of a file, which may also be shorter or not there."""
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)


def free_name(folder: Path, name: str, suffix: str) -> Path:
    """The first of ``name_1``, ``name_2``, ... that is not in ``folder`` yet."""
    return next(path for n in count(1) if not (path := folder / f"{name}_{n}{suffix}").exists())


def write_tensors(path: Path, data: dict[str, Any]) -> None:
    """Write tensors and plain values so that :func:`read_tensors` reads them."""
    import torch

    contents = io.BytesIO()  # torch's own writing to a full disk would not say what is wrong
    torch.save(data, contents)
    with replacing(path) as temporary:
        temporary.write_bytes(contents.getbuffer())


def read_tensors(path: Path) -> dict[str, Any]:
    """What :func:`write_tensors` wrote, without running anything in it; raises if a byte of it has changed."""
    import torch

    with zipfile.ZipFile(path) as archive:
        changed = archive.testzip()  # torch.load does not look at checksums
    if changed is not None:
        raise ValueError(f"the checksum of {changed} is wrong")
    data: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return data
