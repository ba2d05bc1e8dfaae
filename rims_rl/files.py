"""Files that are never half-written, files that grow, and names that are free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path


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
