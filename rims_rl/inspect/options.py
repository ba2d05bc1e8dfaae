"""What watching an agent and looking inside are asked for, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rims_rl.common.cores import THREADS
from rims_rl.common.options import Count, Options, Seed


class WatchOptions(Options):
    """How a policy is played: whole games on Atari, and with the same seed the same game everywhere.

    The RIMs ``drop`` are taken out, ``force`` are always active.
    """

    run: Path  # the folder of a run, or its folder best
    episodes: Count = 1
    max_steps: Count | None = None
    deterministic: bool | None = None  # most likely or sampled actions; None: sampled on Atari and MiniGrid only
    seed: Seed = 0
    threads: Count = THREADS
    drop: tuple[int, ...] = ()
    force: tuple[int, ...] = ()
    trust: bool = False  # load files that can run code, and import what they name
    progress: bool = False  # show a bar


class EnjoyOptions(WatchOptions):
    """A video of a policy that plays, or a window."""

    out: Path | None = None  # .mp4 or .gif; None: in the run
    fps: Annotated[float, Field(ge=1, le=1000)] | None = None  # None: the game's own speed
    window: bool = False
    overlay: bool = False  # draw what RIMs do beside the game
    game_mode: int | None = None
    difficulty: int | None = None


class InspectOptions(WatchOptions):
    """A recording of what each RIM does, and a page, or pictures and statistics, made of it."""

    out: Path | None = None  # .npz; None: in the run
    html: Path | None = None  # a page to write, too
    pictures: Path | None = None  # a folder to write pictures and statistics to
    compare: Path | None = None  # another run, to be played alike and put beside it in pictures
    variant: str | None = None  # of the environment


@dataclass(frozen=True)
class EnjoyResult:
    video: Path | None  # None: it was a window
    steps: int
    fps: float | None
    scores: list[float]  # of the episodes that were played to their end


@dataclass(frozen=True)
class Recording:
    file: Path
    steps: int
    episodes: list[dict[str, Any]]  # first_step, mission, score and steps of each


@dataclass(frozen=True)
class InspectResult:
    recordings: list[Recording]  # of the run and, if there is one, of the run beside it
    page: Path | None
    pictures: Path | None
