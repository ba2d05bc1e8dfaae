"""What evaluations are asked for."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, Field

from rims_rl.common.cores import THREADS
from rims_rl.common.env_options import EnvOptions
from rims_rl.common.options import Count, Options, Seed


class PlayOptions(Options):
    """What all evaluations have."""

    episodes: Count = 100
    deterministic: bool | None = None  # most likely or sampled actions; None: sampled on Atari and MiniGrid only
    seed: Seed = 0
    n_envs: Count = 8  # side by side
    threads: Count = THREADS
    out: Path | None = None  # JSON file to write; None: in the run
    trust: bool = False  # load files that can run code
    progress: bool = False  # show a bar


class EvaluateOptions(PlayOptions, EnvOptions):
    """One policy, in the environment it was trained on, which the options of :class:`EnvOptions` change.

    ``run`` is the folder of a run, its folder ``best``, or a ``.safetensors`` file; with ``random`` it is the name of
    an environment, in which actions are drawn at random. The RIMs ``drop`` are taken out, ``force`` are always active.
    """

    run: Path
    random: bool = False
    drop: tuple[int, ...] = ()
    force: tuple[int, ...] = ()

    model_config = ConfigDict(strict=False)


class VariantsOptions(PlayOptions):
    """Policies in ``variants`` of their environment; ``["all"]`` is all of them."""

    runs: list[Path]
    variants: list[str]


class ReportOptions(Options):
    """What came out of ``run``, beside ``baselines``: files that evaluations wrote, such as that of random actions."""

    run: Path
    baselines: list[Path] = Field(default_factory=list)
    out: Path | None = None  # JSON file to write, with a picture beside it; None: in the run


class CompareOptions(Options):
    """``runs`` are folders of runs, ours or rl_zoo3's, or monitor files of Stable-Baselines3."""

    runs: list[Path] = Field(min_length=1)
    out: Path = Path("comparison.json")  # with a picture beside it
