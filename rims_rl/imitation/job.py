"""One job: a network that learns from one expert with one seed, and its tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rims_rl.imitation.task import Imitation, ImitationConfig
from rims_rl.supervised.job import SupervisedJob


@dataclass(frozen=True)
class ImitationJob(SupervisedJob):
    """Trains one network, and lets it play."""

    kind: ClassVar[str] = "imitation"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ImitationJob:
        config = ImitationConfig.model_validate(data["config"])
        data_dir = None if data["data_dir"] is None else Path(data["data_dir"])
        return cls(Imitation, config, data["seed"], data["workers"], data_dir, label=data["label"])

    def clean_up(self, folder: Path) -> None:
        super().clean_up(folder)
        for path in folder.glob("asked_*.npz"):
            path.unlink()
