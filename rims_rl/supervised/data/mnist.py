"""MNIST's four files, from a folder of the user's, from the cache, or downloaded into it, and checked."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing

URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the mirror that torchvision uses
FILES = {  # SHA-256 of what is inside the .gz
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@cache
def mnist(part: str, folder: Path | None = None) -> tuple[Tensor, Tensor]:
    """Images (N, 28, 28) of bytes, and labels (N), of ``part`` ``"train"`` (60,000) or ``"t10k"`` (10,000)."""
    images, labels = (_read(name, folder) for name in FILES if name.startswith(part))
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return torch.from_numpy(pixels.copy()), torch.from_numpy(np.frombuffer(labels, np.uint8, offset=8).astype(np.int64))


def _read(name: str, folder: Path | None) -> bytes:
    place = folder or _cache()
    for path in (place / name, place / f"{name}.gz"):
        if path.exists():
            return _checked(path.read_bytes(), name, str(path))
    if folder is not None:
        raise UserError(f"{folder} has no {name}.gz, one of MNIST's four files; put it there, or leave out `data_dir`")
    try:
        with urllib.request.urlopen(f"{URL}{name}.gz", timeout=30) as answer:
            data: bytes = answer.read()
    except OSError as error:
        raise UserError(
            f"MNIST is not in {place} and cannot be downloaded ({getattr(error, 'reason', error)}); put "
            f"{', '.join(f'{each}.gz' for each in FILES)} there, or name their folder with `data_dir`"
        ) from error
    contents = _checked(data, name, f"{URL}{name}.gz")
    with replacing(place / f"{name}.gz") as temporary:
        temporary.write_bytes(data)
    return contents


def _checked(data: bytes, name: str, where: str) -> bytes:
    try:
        contents = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        whole = hashlib.sha256(contents).hexdigest() == FILES[name]
    except (OSError, EOFError):
        whole = False
    if not whole:
        raise UserError(f"{where} is not MNIST's {name}, or is damaged: its checksum is wrong; remove it and try again")
    return contents


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rims-rl" / "mnist"
