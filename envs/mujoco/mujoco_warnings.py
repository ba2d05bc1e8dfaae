"""What MuJoCo warns of."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

ABOUT_MODELS = "deprecated"  # words in the files of Gymnasium's bodies, about which users can do nothing


def keep_quiet() -> None:
    """MuJoCo would write its warnings to the terminal, again for each copy, and into a file MUJOCO_LOG.TXT in the
    current folder. Let them be logged instead, and those about the files of bodies not be seen."""
    try:
        import mujoco  # type: ignore[import-untyped]
    except ImportError:  # which Gymnasium says when it makes the environment
        return
    mujoco.set_mju_user_warning(_log)


def _log(warning: str) -> None:
    log.log(logging.DEBUG if ABOUT_MODELS in warning else logging.WARNING, warning)
