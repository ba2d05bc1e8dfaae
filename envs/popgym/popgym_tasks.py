"""POPGym's tasks: their names, which are known without the package, and how they become environments of ours."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from rims_rl.common.errors import UserError

KINDS = (
    "Autoencode", "Battleship", "Concentration", "CountRecall", "HigherLower", "LabyrinthEscape", "LabyrinthExplore",
    "MineSweeper", "MultiarmedBandit", "NoisyPositionOnlyCartPole", "NoisyPositionOnlyPendulum", "PositionOnlyCartPole",
    "PositionOnlyPendulum", "RepeatFirst", "RepeatPrevious", "VelocityOnlyCartpole",
)  # fmt: skip
LEVELS = ("Easy", "Medium", "Hard")

# Short names, such as "RepeatPreviousEasy", and Gymnasium's ids.
POPGYM_TASKS = {f"{kind}{level}": f"popgym-{kind}{level}-v0" for kind, level in product(KINDS, LEVELS)}


def register_popgym(env_id: str) -> None:
    """Import POPGym, by which Gymnasium learns of its tasks; a UserError says what to install for ``env_id``."""
    try:
        import popgym  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "popgym":
            raise
        raise UserError(f"{env_id} needs POPGym, which is not installed; run: pip install 'rims-rl[popgym]'") from None
    if env_id not in gym.registry:
        raise UserError(f"{env_id} needs mazelib, which is not installed; run: pip install 'popgym[navigation]'")


def make_popgym(env_id: str, render_mode: str | None, arguments: dict[str, Any]) -> gym.Env[Any, Any]:
    """One task, to be drawn if it can be. A Tuple or a Dict of observations becomes one vector."""
    register_popgym(env_id)
    # Gymnasium's checker warns of `info` in some tasks, and users cannot change it
    env = gym.make(env_id, disable_env_checker=True, **arguments)
    if render_mode in env.metadata["render_modes"]:
        env.unwrapped.render_mode = render_mode  # not all constructors take it
    return FlattenObservation(env) if isinstance(env.observation_space, spaces.Tuple | spaces.Dict) else env
