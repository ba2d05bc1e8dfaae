"""Names of environments: short names of Atari games, of POPGym and of our own, and any Gymnasium id, also one that a
user's own module registers; and how they are played."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ale_py
import gymnasium as gym
import minigrid  # noqa: F401  registers MiniGrid and BabyAI
from ale_py import ALEInterface, roms

from rims_rl.common.env_options import EnvOptions
from rims_rl.common.errors import UserError
from rims_rl.common.options import Options
from rims_rl.common.own_code import import_here
from rims_rl.common.suggestions import did_you_mean
from rims_rl.envs.atari.sprites import DISTRACTORS
from rims_rl.envs.minigrid.observation import OBSERVATIONS
from rims_rl.envs.one_env import import_packages, is_minigrid
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
    gym_packages: list[str] | None = None  # what to import first; the rest is in EnvOptions
    env_kwargs: dict[str, Any] | None = None
    env_wrapper: list[Any] | None = None
    frame_stack: int | None = None
    vec_env: str | None = None

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
        return {key: value for key in OPTIONS if (value := getattr(self, key)) is not None}


BACKENDS = ("ale", "sb3")
OPTIONS = tuple(EnvOptions.model_fields)
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


class _Asked(Options, EnvOptions):
    """Options whose mistakes are a UserError."""


def resolve(name: str, **options: Any) -> Resolved:
    """A short name, an Atari id or any Gymnasium id -> what it stands for; a UserError names the closest ones.

    ``DemonAttack`` and ``DemonAttackNoFrameskip-v4`` have no sticky actions, ``ALE/DemonAttack-v5`` its own 0.25.
    ``my_module:My/Env-v0`` imports the module first, which may be in the current folder, as ``gym_packages`` are.
    ``options`` are those of :class:`~rims_rl.common.env_options.EnvOptions`. ``backend``, ``game_mode``, ``difficulty``
    and ``distractors`` are for Atari games; ``backend`` is ``"ale"`` unless given. ``observation`` is for MiniGrid and
    BabyAI, and is ``"symbolic"`` unless given.
    """
    asked = _Asked(**options)
    import_packages(asked.gym_packages)
    env = _find(name)
    own = {"gym_packages", "env_kwargs", "env_wrapper", "frame_stack", "vec_env"}
    given: dict[str, Any] = {key: value or None for key, value in asked.given().items() if key in own}
    env = env._replace(**given)
    return _with_atari_options(env, asked) if env.rom else _with_observation(env, asked)


def _with_observation(env: Resolved, asked: EnvOptions) -> Resolved:
    """Of anything but an Atari game."""
    for key in ("distractors", "backend", "game_mode", "difficulty"):
        if (value := getattr(asked, key)) is not None:
            raise UserError(f"`{key}` {value} is for Atari games, and {env.id} is not one; leave it out")
    if env.observation is None and not env.family and is_minigrid(env):
        env = env._replace(observation="symbolic")
    elif env.observation is not None and env.env_wrapper and not is_minigrid(env):
        env = env._replace(observation=None)
    if asked.observation is None:
        return env
    if env.family != "minigrid":
        why = f"is neither, or not with `env_wrapper` {env.env_wrapper}" if env.env_wrapper else "is neither"
        raise UserError(f"`observation` {asked.observation} is for MiniGrid and BabyAI, and {env.id} {why}")
    if asked.observation not in OBSERVATIONS:
        raise UserError(f"`observation` must be symbolic or rgb, got {asked.observation!r}")
    return env._replace(observation=asked.observation)


def _with_atari_options(env: Resolved, asked: EnvOptions) -> Resolved:
    assert env.rom is not None
    if asked.observation is not None:
        raise UserError(f"`observation` {asked.observation} is for MiniGrid and BabyAI, and {env.id} is neither")
    for key in ("env_wrapper", "frame_stack", "vec_env"):
        if (value := getattr(env, key)) is not None:
            raise UserError(
                f"`{key}` {value} is not for Atari games, whose frames are prepared and stacked already; leave it out"
            )
    backend, game_mode, difficulty = asked.backend or "ale", asked.game_mode, asked.difficulty
    if backend not in BACKENDS:
        raise UserError(f"`backend` must be ale or sb3, got {backend!r}")
    if backend == "ale":
        for key in ("difficulty", "game_mode", "env_kwargs"):
            if (value := getattr(asked, key)) is not None:
                raise UserError(f"`{key}` {value} needs `backend` sb3: ALE's vector environment plays only the default")
    if backend == "sb3" and env.rom in WITHOUT_NOOP:
        raise UserError(
            f"{env.name} has no action NOOP, which Stable-Baselines3's wrappers need; only `backend` ale plays it"
        )
    for i, (option, value) in enumerate((("game_mode", game_mode), ("difficulty", difficulty))):
        if value is not None and value not in (valid := atari_variants(env.rom)[i]):
            raise UserError(f"`{option}` must be one of {', '.join(map(str, valid))} in {env.name}, got {value}")
    if asked.distractors is not None and asked.distractors not in DISTRACTORS:
        raise UserError(f"`distractors` must be one of {', '.join(DISTRACTORS)}, got {asked.distractors!r}")
    return env._replace(backend=backend, game_mode=game_mode, difficulty=difficulty, distractors=asked.distractors)


def _is_recall(env_id: str) -> bool:
    return env_id.startswith("RimsRL/Recall-")


def _find(name: str) -> Resolved:
    if ":" in name:
        return _find_in_module(*name.split(":", 1))
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
        return _registered(name)
    hint = "give an Atari game, such as DemonAttack, a Gymnasium id, or one of your own as module:id"
    for known in ([*gym.registry, *POPGYM_TASKS.values()], [*games, *own, *POPGYM_TASKS]):  # the second counts more
        hint = did_you_mean(name, known, hint, count=3, alike=0.7)
    raise UserError(f"there is no environment called {name!r}; {hint}")


def _registered(env_id: str) -> Resolved:
    spec = gym.registry[env_id]
    if str(spec.entry_point).startswith("ale_py."):  # Pong-v4, PongNoFrameskip-v0, ...: all are prepared alike
        short = next(short for short, game in atari_games().items() if game == spec.kwargs["game"])
        name = env_id.removeprefix("ALE/")
        return Resolved(name, f"ALE/{short}-v5", spec.kwargs["game"], spec.kwargs["repeat_action_probability"])
    observation = "symbolic" if str(spec.entry_point).startswith("minigrid.") else None
    return Resolved(env_id.replace("/", "-"), env_id, None, 0.0, observation=observation)


def _find_in_module(module: str, env_id: str) -> Resolved:
    """Gymnasium's ``module:id``."""
    found = import_here(module, f"the module of {module}:{env_id}")
    if env_id in gym.registry:
        env = _find(env_id)
        return env._replace(id=f"{module}:{env_id}") if env.family is None else env
    if isinstance(getattr(found, env_id, None), type):
        raise UserError(
            f"{module}:{env_id} is a class, and an id is needed; write into {module}: "
            f'gymnasium.register(id="{env_id}-v0", entry_point="{module}:{env_id}"), and give {module}:{env_id}-v0'
        )
    of_module = [name for name, spec in gym.registry.items() if module in str(spec.entry_point)]
    hint = did_you_mean(env_id, of_module, f"it registers {', '.join(of_module) or 'none'}")
    raise UserError(f"the module {module} registers no environment {env_id!r}; {hint}")
