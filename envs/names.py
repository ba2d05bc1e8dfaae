"""Names of environments: short names of Atari games, of POPGym and of our own, and any Gymnasium id; and how they are
played."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ale_py
import gymnasium as gym
import minigrid  # noqa: F401  registers MiniGrid and BabyAI
from ale_py import ALEInterface, roms

from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean
from rims_rl.envs.atari.sprites import DISTRACTORS
from rims_rl.envs.minigrid.observation import OBSERVATIONS
from rims_rl.envs.popgym.popgym_tasks import POPGYM_TASKS

ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # or the first game of a process prints a banner


class Resolved(NamedTuple):
    """What a name stands for."""

    name: str  # as it appears in folder names and result files: "DemonAttack", "CartPole-v1"
    id: str  # Gymnasium's
    rom: str | None  # ALE's name of the game, if it is one
    sticky: float  # probability that an Atari game repeats the last action
    backend: str | None = None  # of an Atari game: "ale" or "sb3"
    game_mode: int | None = None  # ALE's; None: the game's own default
    difficulty: int | None = None  # likewise
    observation: str | None = None  # of a MiniGrid environment: "symbolic" or "rgb"
    distractors: str | None = None  # over the frames of an Atari game: one of DISTRACTORS

    @property
    def family(self) -> str | None:
        """The section of the zoo that holds for all environments of a kind, if this is one of them."""
        if self.id in POPGYM_TASKS.values():
            return "popgym"
        if _is_recall(self.id):
            return "recall"
        return "atari" if self.rom else "minigrid" if self.observation else None

    @property
    def deterministic(self) -> bool:
        """Whether agents are evaluated with their most likely actions; as in rl_zoo3, not on Atari and MiniGrid."""
        return self.family not in ("atari", "minigrid")

    @property
    def options(self) -> dict[str, Any]:
        """What :func:`resolve` takes beside the name; saved with a policy, so that it is played as it was trained."""
        return {key: getattr(self, key) for key in OPTIONS}


BACKENDS = ("ale", "sb3")
OPTIONS = ("backend", "game_mode", "difficulty", "observation", "distractors")
WITHOUT_NOOP = ("backgammon", "video_checkers")  # the only games in which one cannot do nothing


@cache
def atari_games() -> dict[str, str]:
    """Every Atari game for one player: its short name, such as ``"DemonAttack"``, and ALE's, ``"demon_attack"``."""
    gym.register_envs(ale_py)
    specs = [spec for name, spec in gym.registry.items() if name.startswith("ALE/") and name.endswith("-v5")]
    return {spec.name: spec.kwargs["game"] for spec in specs}


@cache
def atari_variants(rom: str) -> tuple[list[int], list[int]]:
    """The modes and the difficulties that ALE knows for a game."""
    ale = ALEInterface()
    ale.loadROM(roms.get_rom_path(rom))  # type: ignore[arg-type]  # None for a game that is not there
    return ale.getAvailableModes(), ale.getAvailableDifficulties()


@cache
def _atari_actions(rom: str) -> tuple[str, ...]:
    ale = ALEInterface()
    ale.loadROM(roms.get_rom_path(rom))  # type: ignore[arg-type]
    return tuple(action.name for action in ale.getMinimalActionSet())


def action_set(env: Resolved) -> str | None:
    """What the actions of an Atari game are, in their order: two games may have as many, with other meanings."""
    return None if env.rom is None else " ".join(_atari_actions(env.rom))


@cache
def own_envs() -> dict[str, str]:
    """Our own environments: short names, such as ``"PickupKnown"``, and Gymnasium's ids."""
    specs = [spec for spec in gym.registry.values() if spec.namespace == "RimsRL"]
    return {spec.name.replace("-", ""): spec.id for spec in specs}


def resolve(
    name: str,
    backend: str | None = None,
    game_mode: int | None = None,
    difficulty: int | None = None,
    observation: str | None = None,
    distractors: str | None = None,
) -> Resolved:
    """A short name, an Atari id or any Gymnasium id -> what it stands for; a UserError names the closest ones.

    ``DemonAttack`` and ``DemonAttackNoFrameskip-v4`` have no sticky actions, ``ALE/DemonAttack-v5`` its own 0.25.
    ``backend``, ``game_mode``, ``difficulty`` and ``distractors`` are for Atari games; ``backend`` is ``"ale"`` unless
    given.
    ``observation`` is for MiniGrid and BabyAI, and is ``"symbolic"`` unless given.
    """
    env = _find(name)
    if observation is not None:
        if env.family != "minigrid":
            raise UserError(f"`observation` {observation} is for MiniGrid and BabyAI, and {env.id} is neither")
        if observation not in OBSERVATIONS:
            raise UserError(f"`observation` must be symbolic or rgb, got {observation!r}")
        env = env._replace(observation=observation)
    options = {"distractors": distractors, "backend": backend, "game_mode": game_mode, "difficulty": difficulty}
    given = [f"`{key}` {value}" for key, value in options.items() if value is not None]
    if env.rom is None:
        if given:
            raise UserError(f"{given[0]} is for Atari games, and {env.id} is not one; leave it out")
        return env
    backend = backend or "ale"
    if backend not in BACKENDS:
        raise UserError(f"`backend` must be ale or sb3, got {backend!r}")
    if backend == "ale" and (game_mode is not None or difficulty is not None):
        raise UserError(f"{given[-1]} needs `backend` sb3: ALE's vector environment plays only the default one")
    if backend == "sb3" and env.rom in WITHOUT_NOOP:
        raise UserError(
            f"{env.name} has no action NOOP, which Stable-Baselines3's wrappers need; only `backend` ale plays it"
        )
    for i, (option, value) in enumerate((("game_mode", game_mode), ("difficulty", difficulty))):
        if value is not None and value not in (valid := atari_variants(env.rom)[i]):
            raise UserError(f"`{option}` must be one of {', '.join(map(str, valid))} in {env.name}, got {value}")
    if distractors is not None and distractors not in DISTRACTORS:
        raise UserError(f"`distractors` must be one of {', '.join(DISTRACTORS)}, got {distractors!r}")
    return env._replace(backend=backend, game_mode=game_mode, difficulty=difficulty, distractors=distractors)


def _is_recall(env_id: str) -> bool:
    return env_id.startswith("RimsRL/Recall-")


def _find(name: str) -> Resolved:
    games, own = atari_games(), own_envs()
    short = name.removesuffix("NoFrameskip-v4")
    if short in games:
        return Resolved(short, f"ALE/{short}-v5", games[short], 0.0)
    for short, id_ in own.items():
        if name in (short, id_):
            return Resolved(short, id_, None, 0.0, observation=None if _is_recall(id_) else "symbolic")
    for short, id_ in POPGYM_TASKS.items():
        if name in (short, id_):
            return Resolved(short, id_, None, 0.0)
    if name in gym.registry:
        spec = gym.registry[name]
        if name.startswith("ALE/"):
            return Resolved(f"{spec.name}-v5", name, games[spec.name], spec.kwargs["repeat_action_probability"])
        observation = "symbolic" if str(spec.entry_point).startswith("minigrid.") else None
        return Resolved(name.replace("/", "-"), name, None, 0.0, observation=observation)
    hint = "give an Atari game, such as DemonAttack, or a Gymnasium id"
    for known in ([*gym.registry, *POPGYM_TASKS.values()], [*games, *own, *POPGYM_TASKS]):  # the second counts more
        hint = did_you_mean(name, known, hint, count=3, alike=0.7)
    raise UserError(f"there is no environment called {name!r}; {hint}")
