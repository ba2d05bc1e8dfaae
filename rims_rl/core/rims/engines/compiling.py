"""A C file made into a library by the machine's own compiler, and kept in the user's cache folder.

What lies in the cache is loaded into this process, so it is believed only if it is the user's own, nobody else can
write to it, and it is, byte for byte, what was built: length and SHA-256 stand in a file beside it. Whatever is not so
is built again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rims_rl.common.files import replacing

_BUILDING = "build_"  # prefix of folders in which a compiler is at work
_LONGEST = 300  # seconds for the compiler, which takes five


def load_first(source: Path, choices: Sequence[Sequence[str]]) -> ctypes.CDLL:
    """The library made of ``source`` with the first of these flags that the compiler knows. Raises an OSError,
    ValueError or SubprocessError that says why it cannot be had."""
    for flags in choices[:-1]:
        with contextlib.suppress(ChildProcessError):  # of the compiler
            return load(source, flags)
    return load(source, choices[-1])


def load(source: Path, flags: Sequence[str]) -> ctypes.CDLL:
    """The library made of ``source`` with these flags."""
    command = [*(shlex.split(os.environ.get("CC", "cc")) or [""]), *flags]
    what = hashlib.sha256(source.read_bytes() + "\0".join([*command, _processor()]).encode()).hexdigest()[:16]
    with _cache_folder() as folder:
        path = folder / f"{source.stem}_{what}.so"
        if _is_intact(path):
            with contextlib.suppress(OSError):  # built with the C library of another machine that shares the folder
                return ctypes.CDLL(str(path))
        _build([*command, "-o"], source, path)
        return ctypes.CDLL(str(path))


@contextlib.contextmanager
def _cache_folder() -> Iterator[Path]:
    """The folder, ours alone, without what killed compilers left there. While it is in use, nobody clears it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rims-rl" / "loops"
    if not folder.is_absolute():
        raise ValueError(f"the cache folder must have an absolute path, got {folder}; see XDG_CACHE_HOME and HOME")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(folder.stat()):
        raise ValueError(f"{folder} must belong to you and be closed to others' writing; `chmod go-w` it, or remove it")
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:  # the kernel takes a lock from a process that dies, however it dies; some file systems have none
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody is at work
            for left in folder.glob(f"{_BUILDING}*"):
                shutil.rmtree(left, ignore_errors=True)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        os.close(lock)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_intact(path: Path) -> bool:
    """Whether this is what was built. Nothing but plain files is opened: a pipe would never answer."""
    with contextlib.suppress(OSError):
        if all(stat.S_ISREG(s.st_mode) and _is_ours(s) for s in map(os.lstat, (path, _seal_of(path)))):
            seal = _seal_of(path).read_bytes()
            return seal.startswith(b"%d " % path.stat().st_size) and seal == _seal(path)
    return False


def _build(command: list[str], source: Path, path: Path) -> None:
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"there is no C compiler {command[0]!r}; install gcc or clang, or name yours in CC")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_BUILDING) as temporary:
        built = Path(temporary) / path.name
        compiler = subprocess.run(
            [*command, str(built), str(source), "-lm"], capture_output=True, stdin=subprocess.DEVNULL, timeout=_LONGEST
        )
        if compiler.returncode or not built.is_file():
            lines = compiler.stderr.decode(errors="replace").split("\n", 1)
            raise ChildProcessError(f"{command[0]} ended with code {compiler.returncode}: {lines[0]}")
        built.chmod(0o700)
        seal = _seal(built)
        with replacing(path) as new:
            built.rename(new)
    with replacing(_seal_of(path)) as new:  # after it: a file without its seal is built again
        new.write_bytes(seal)
        new.chmod(0o600)


def _seal_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _seal(path: Path) -> bytes:
    contents = path.read_bytes()
    return b"%d %s\n" % (len(contents), hashlib.sha256(contents).hexdigest().encode())


def _processor() -> str:
    """What -march=native depends on: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = (line for line in lines if line.startswith(("flags", "Features")))
    return platform.machine() + next(features, platform.processor())
