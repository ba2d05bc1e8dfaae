"""What training is asked for, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from rims_rl.common.cores import THREADS
from rims_rl.common.options import Count, Options
from rims_rl.runs.folder import Arguments


class TrainOptions(Options, Arguments):
    """A new run: what :class:`~rims_rl.runs.folder.Arguments` has, hyperparameters, and where the run goes.

    Hyperparameters are those of the zoo for the environment, changed by ``config``, a YAML file, and then by
    ``settings``, in which keys of mappings have dots: ``{"learning_rate": 1e-3, "policy_kwargs.net_arch": [64]}``.
    ``core``, ``n_timesteps`` and ``n_envs`` are some of them that are often changed.
    """

    model_config = ConfigDict(strict=False)

    threads: Count = THREADS
    checkpoint_freq: Count = 100_000
    core: str | None = None
    n_timesteps: Count | None = None
    n_envs: Count | None = None
    config: Path | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    logdir: Path = Path("logs")
    callbacks: list[str] = Field(default_factory=list)  # of Stable-Baselines3: dotted.path:key=value,key=value
    trust: bool = False  # load files that can run code
    progress: bool = False  # show a bar

    def arguments(self) -> Arguments:
        """What the run's ``args.yml`` keeps."""
        return Arguments(**self.model_dump(mode="json", include=set(Arguments.model_fields)))

    def all_settings(self) -> dict[str, Any]:
        """Hyperparameters that were given."""
        often = {"core": self.core, "n_timesteps": self.n_timesteps, "n_envs": self.n_envs}
        columns = {"policy_kwargs.columns": len(self.columns)} if self.columns else {}
        return self.settings | {key: value for key, value in often.items() if value is not None} | columns


class ResumeOptions(Options):
    """Go on with a run, to the end it was meant to have or to ``n_timesteps``."""

    run: Path
    n_timesteps: Count | None = None
    trust: bool = False  # import code that the run names, although somebody else trained it
    callbacks: list[str] = Field(default_factory=list)  # they are not kept in the run
    progress: bool = False


@dataclass(frozen=True)
class TrainResult:
    """What came of training; all else is in ``folder``."""

    folder: Path
    env: str  # its name in folders and result files
    steps: int
    seconds: float  # of the whole run, had it never been interrupted
    scores: list[float]  # of the last finished episodes, 100 at most, the newest last
    checkpoint: int | None  # the steps of the newest
    stopped_by: int | None = None  # the number of the signal, if it was stopped before its end
    notes: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        return self.stopped_by is None
