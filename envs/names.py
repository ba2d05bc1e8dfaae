"""Names of environments: short names of Atari games, and any Gymnasium id."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import ale_py
import gymnasium as gym

from rims_rl.errors import UserError


class Resolved(NamedTuple):
    """What a name stands for."""

    name: str  # as it appears in folder names and result files: "DemonAttack", "CartPole-v1"
    id: str  # Gymnasium's
    rom: str | None  # ALE's name of the game, if it is one
    sticky: float  # probability that an Atari game repeats the last action


@cache
def atari_games() -> dict[str, str]:
    """Every Atari game for one player: its short name, such as ``"DemonAttack"``, and ALE's, ``"demon_attack"``."""
    gym.register_envs(ale_py)
    specs = [spec for name, spec in gym.registry.items() if name.startswith("ALE/") and name.endswith("-v5")]
    return {spec.name: spec.kwargs["game"] for spec in specs}


def resolve(name: str) -> Resolved:
    """A short name, an Atari id or any Gymnasium id -> what it stands for; a UserError names the closest ones.

    ``DemonAttack`` and ``DemonAttackNoFrameskip-v4`` have no sticky actions, ``ALE/DemonAttack-v5`` its own 0.25.
    """
    games = atari_games()
    short = name.removesuffix("NoFrameskip-v4")
    if short in games:
        return Resolved(short, f"ALE/{short}-v5", games[short], 0.0)
    if name in gym.registry:
        spec = gym.registry[name]
        if name.startswith("ALE/"):
            return Resolved(f"{spec.name}-v5", name, games[spec.name], spec.kwargs["repeat_action_probability"])
        return Resolved(name.replace("/", "-"), name, None, 0.0)
    close = _closest(name, games) or _closest(name, gym.registry)
    hint = (
        f"did you mean {' or '.join(close)}?" if close else "give an Atari game, such as DemonAttack, or a Gymnasium id"
    )
    raise UserError(f"there is no environment called {name!r}; {hint}")


def _closest(name: str, names: Iterable[str]) -> list[str]:
    by_lower = {known.lower(): known for known in names}
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.7)]
