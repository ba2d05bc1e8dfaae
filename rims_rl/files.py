"""Files that are never half-written, and files that grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
