"""What a search is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rims_rl.common.options import Count
from rims_rl.training.options import TrainOptions


class TuneOptions(TrainOptions):
    """A search on one environment: what trials have in common is said as for training, and trials differ in what
    ``space`` says. Each of ``cores`` gets as many trials, and the same space but for what only its kind has."""

    cores: tuple[str, ...] = ("rims-robust",)
    trials: Count = 50  # of each core, those of before among them
    space: Path | None = None  # YAML file; None: the one of the zoo
    evaluations: Count = 10  # of each trial; the last is its score, and the others may end it early
    sampler: Literal["tpe", "random"] = "tpe"
    pruner: Literal["median", "halving", "hyperband", "none"] = "median"
    storage: str | None = None  # URL of a database; None: a file in the folder of the search
    name: str | None = None  # of that folder; None: environment and algorithm
