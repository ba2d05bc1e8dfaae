"""Files that are never half-written, files that grow, checkpoints, and names that are free."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import platform
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from rims_rl.common.errors import UserError


class Damaged(Exception):
    """A file's bytes are not those that were written."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; afterwards it is renamed to ``path``, or removed if writing failed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(path)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())  # or a power failure could leave the new name with nothing in it
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.filename is None:  # of a full disk, for one
            error.filename = str(path)
        raise


def check_writable(path: Path) -> None:
    """A UserError now, if ``path`` could not be written after long work. Nothing is left behind."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def temporary_name(path: Path, suffix: str = "") -> Path:
    """Where to write what will be ``path``; it says whose it is, see :func:`clear_leftovers`."""
    return path.with_name(f".{path.name}.{os.getpid()}@{platform.node()}{suffix}")


def clear_leftovers(folder: Path) -> None:
    """Remove what processes of this machine that were killed left half-written below ``folder``."""
    for path in folder.rglob(".*@*"):
        name = re.fullmatch(rf"\..+\.(\d+)@{re.escape(platform.node())}(\.\w+)?", path.name)
        if name and not _is_running(int(name[1])):
            path.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def cut(path: Path, size: int) -> None:
    """Keep the first ``size`` bytes of a file, which may also be shorter or not there."""
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)


def free_name(folder: Path, name: str, suffix: str) -> Path:
    """The first of ``name_1``, ``name_2``, ... that is not in ``folder`` yet."""
    return next(path for n in count(1) if not (path := folder / f"{name}_{n}{suffix}").exists())


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write ``data`` so that ``path`` is never half-written."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n")


def write_tensors(path: Path, data: dict[str, Any]) -> None:
    """Write tensors and plain values so that :func:`read_tensors` reads them."""
    import torch

    contents = io.BytesIO()  # torch's own writing to a full disk would not say what is wrong
    torch.save(data, contents)
    with replacing(path) as temporary:
        temporary.write_bytes(contents.getbuffer())


def read_tensors(path: Path) -> dict[str, Any]:
    """What :func:`write_tensors` wrote, without running anything in it.

    Raises:
        Damaged: it is not whole, or a byte of it has changed.
        UserError: it cannot be read, or it is whole and holds something else.
    """
    import torch

    try:
        contents = io.BytesIO(path.read_bytes())  # so that nothing below fails because of the disk
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    try:
        with zipfile.ZipFile(contents) as archive:
            changed = archive.testzip()  # torch.load does not look at checksums
            if changed is not None:
                raise ValueError(f"the checksum of {changed} is wrong")
        contents.seek(0)
        data = torch.load(contents, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} holds more than tensors and plain values, so that rims-rl does not read it") from error
    except Exception as error:  # there is no end to how reading garbage can fail
        raise Damaged((str(error) or type(error).__name__).splitlines()[0]) from error
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold a dictionary, got {type(data).__name__}")
    return data
