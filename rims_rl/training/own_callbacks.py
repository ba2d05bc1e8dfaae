"""Callbacks of Stable-Baselines3 that a user brings, by dotted path: ``my_module.MyCallback:freq=10,name=mine``."""

from __future__ import annotations

from collections.abc import Sequence

from stable_baselines3.common.callbacks import BaseCallback

from rims_rl.common.errors import UserError
from rims_rl.common.own_code import import_path
from rims_rl.config.layers import parse_mapping


def make_callbacks(texts: Sequence[str]) -> list[BaseCallback]:
    """What ``callbacks`` name. They belong to this process and not to the run: resuming it wants them once more."""
    return [_make(text) for text in texts]


def _make(text: str) -> BaseCallback:
    path, _, arguments = text.partition(":")
    what = "`callbacks`"
    made = import_path(path, what)
    try:
        callback = made(**parse_mapping(arguments, f"{what} {text!r}"))
    except UserError:
        raise
    except Exception as error:  # whatever it does
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{what} {text!r} cannot be made: {reason}") from error
    if not isinstance(callback, BaseCallback):
        raise UserError(
            f"{what} {path} must make a callback of Stable-Baselines3 (BaseCallback), got {type(callback).__name__}"
        )
    return callback
