"""What was seen of an expert: made once, kept in the cache, and read by every training.

::

    <cache>/rims-rl/imitation/<key>/
        pictures.npy actions.npy starts.npy     see Watched; they follow from the expert, the seed and the numbers
        about.json                              written last: the actions' space, and the scores of the episodes
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from pydantic import Field

from rims_rl.agents.saved.description import space_from_json, space_to_json
from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing, write_json
from rims_rl.envs.pictures import Pictured
from rims_rl.imitation.expert import Expert, ExpertActor, NoisyActor, check_action_space, check_spaces
from rims_rl.imitation.playing import Actor, Played, Report, Watched, play
from rims_rl.runs.records import Record, read_record

COPIES = 8  # environments side by side, at most
PARTS = tuple(Watched._fields)


class About(Record):
    """``about.json``."""

    action_space: dict[str, Any]
    scores: Annotated[list[float], Field(min_length=1)]

    def space(self) -> spaces.Space[Any]:
        return space_from_json(self.action_space)


class Trajectories:
    """Several sequences of steps, from which windows are taken."""

    def __init__(self, parts: Sequence[Watched]) -> None:
        self._parts = list(parts)
        self._firsts = [_first_steps(part.starts) for part in parts]

    def add(self, part: Watched) -> None:
        self._parts.append(part)
        self._firsts.append(_first_steps(part.starts))

    @property
    def steps(self) -> int:
        return sum(len(part.starts) for part in self._parts)

    def windows(
        self, count: int, length: int, stack: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pictures `(length, count, stack * 3, side, side)`, actions and starts `(length, count, ...)`.

        Every step is as likely as any other to be the first of a window, but for the last ones. Each picture has those
        of the ``stack - 1`` steps before it beside it, of the same episode: at its beginning, the first one again.
        """
        room = np.array([max(0, len(part.starts) - length + 1) for part in self._parts])
        if not room.sum():
            longest = max(len(part.starts) for part in self._parts)
            raise UserError(f"length must be at most {longest}, the steps that were seen of the expert, got {length}")
        parts = random.choice(len(self._parts), count, p=room / room.sum())
        found = [self._window(part, random.integers(room[part]), length, stack) for part in parts]
        pictures, actions, starts = (np.stack(each, 1) for each in zip(*found, strict=True))
        return pictures, actions, starts

    def _window(self, part: int, begin: int, length: int, stack: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        watched, steps = self._parts[part], np.arange(begin, begin + length)
        back = np.arange(stack)[::-1]  # the newest last
        seen = np.maximum(steps[:, None] - back, self._firsts[part][steps, None])  # (length, stack)
        pictures = watched.pictures[seen]  # (length, stack, side, side, 3)
        return as_channels(pictures), watched.actions[steps], watched.starts[steps]


def as_channels(pictures: np.ndarray) -> np.ndarray:
    """`(n, stack, side, side, 3)` -> `(n, stack * 3, side, side)`, the channels of one picture side by side."""
    count, stack, side = pictures.shape[:3]
    return pictures.transpose(0, 1, 4, 2, 3).reshape(count, stack * 3, side, side)


def _first_steps(starts: np.ndarray) -> np.ndarray:
    """For each step, the first one of its episode."""
    begins = starts.copy()
    begins[0] = True
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))


class Watching(NamedTuple):
    """How an expert is watched."""

    episodes: int
    seed: int
    side: int  # of pictures, in pixels; 0: only the scores are wanted
    noise: float = 0.0  # in what it does, see NoisyActor; what is kept is what it wanted to do


def watch_expert(expert: Expert, how: Watching, report: Report = lambda steps: None) -> Played:
    """Let the expert play, and keep what is seen."""
    pictured = Pictured(expert.env, min(COPIES, how.episodes), how.seed, how.side)
    try:
        check_action_space(pictured.envs.action_space, expert.env.id)
        check_spaces(expert, pictured.envs)
        meant = _Remembered(ExpertActor(expert, pictured.envs, how.seed))
        actor = NoisyActor(meant, expert.action_space, how.noise, how.seed) if how.noise else meant
        return play(pictured, actor, how.episodes, expert.prepared, meant.again, watch=how.side > 0, report=report)
    finally:
        pictured.close()


class _Remembered:
    """An actor that is asked once at each step, and can say again what it answered."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._last = np.zeros(0)

    def __call__(self, observations: Any, pictures: np.ndarray, starts: np.ndarray) -> np.ndarray:
        self._last = self._actor(observations, pictures, starts)
        return self._last

    def again(self, observations: Any, pictures: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return self._last


def cache_folder(data_dir: Path | None) -> Path:
    """Where trajectories are kept: in ``data_dir``, or in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rims-rl" / "imitation"
    return data_dir or cache


def key_of(definition: dict[str, Any]) -> str:
    """The name of a folder for what follows from ``definition``."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:12]


def made_once(folder: Path, make: Callable[[], tuple[Played, spaces.Space[Any]]]) -> None:
    """Let ``folder`` hold what ``make`` gives, unless it already does."""
    if (folder / "about.json").exists():
        return
    played, space = make()
    assert played.watched is not None
    for name, part in zip(PARTS, played.watched, strict=True):
        with replacing(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, part)
    write_json(folder / "about.json", {"action_space": space_to_json(space), "scores": played.scores})


def read_trajectories(folder: Path) -> tuple[Watched, About]:
    """What :func:`made_once` kept; pictures stay on the disk until they are looked at."""
    remedy = "remove the folder, and the same command makes it again"
    about = read_record(folder / "about.json", About, remedy)
    try:
        pictures, actions, starts = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in PARTS)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged ({str(error).splitlines()[0]}); {remedy}") from error
    return Watched(pictures, np.array(actions), np.array(starts)), about
