"""Code of a user's own, by name: modules and dotted paths; and whether a file that names some is the user's own, too.

A file from somebody else must not make us import anything. What a user of this machine trains is signed with a key that
is in no run, so that their own files need no `trust`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rims_rl.common.errors import UserError


def import_here(name: str, what: str) -> ModuleType:
    """The module ``name``, which may also be in the current folder. ``what`` it is begins the UserError."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)  # last, so that a file here never hides a module that others import
    try:
        return import_module(name)
    except Exception as error:  # whatever the module does
        if isinstance(error, UserError):
            raise
        missing = isinstance(error, ModuleNotFoundError) and error.name in _parents(name)
        remedy = "start where the file is, or install it" if missing else f"mend {name}, or install what it needs"
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise UserError(f"{what} cannot be imported: {reason}; {remedy}") from error


def import_path(path: str, what: str) -> Any:
    """What the dotted path ``path`` leads to; ``what`` it is begins the UserError."""
    module, _, name = path.rpartition(".")
    if not module or not all(part.isidentifier() for part in path.split(".")):
        raise UserError(f"{what} must be a dotted path, such as my_module.MyClass or torch.nn.ReLU, got {path!r}")
    found = import_here(module, f"{what} {path}")
    if not hasattr(found, name):
        raise UserError(f"{what} {path}: the module {module} has no {name}")
    return getattr(found, name)


def sign(data: Any) -> str | None:
    """With the key of this user, which is made when it is first needed; None if it cannot be kept."""
    key = _key(make=True)
    return None if key is None else _signature(key, data)


def is_signed(data: Any, signature: str | None) -> bool:
    """Whether :func:`sign` gave ``signature`` for ``data`` to the same user."""
    key = _key(make=False)
    return key is not None and signature is not None and hmac.compare_digest(_signature(key, data), signature)


def _signature(key: bytes, data: Any) -> str:
    return hmac.new(key, json.dumps(data, sort_keys=True, default=str).encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rims-rl"
    file = folder / "key"
    try:
        if make and not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                new.write(secrets.token_bytes(32))
        return file.read_bytes() or None
    except FileExistsError:  # somebody else was faster
        return file.read_bytes() or None
    except (OSError, RuntimeError):  # no home, or not ours to write
        return None


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
