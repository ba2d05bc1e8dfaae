"""Dataset aggregation (DAgger, Ross et al., 2011): a learner plays, and the expert says what it would have done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing, write_json
from rims_rl.envs.pictures import Pictured
from rims_rl.imitation.expert import ExpertActor, load_expert
from rims_rl.imitation.network import Learner
from rims_rl.imitation.playing import Watched, play
from rims_rl.runs.records import Record, read_record

NAME = "asked_{:09d}.npz"  # in the folder of a training, by the iteration after which the expert was asked


class Teacher(Record):
    """``teacher.json`` beside trajectories: where the expert is on this machine."""

    source: str
    trust: bool


def remember_teacher(trajectories: Path, source: str, trust: bool) -> None:
    """Let trainings in other processes find the expert."""
    place = str(Path(source).absolute()) if Path(source).exists() else source
    write_json(trajectories / "teacher.json", {"source": place, "trust": trust})


class Aggregation:
    """What was asked so far in one training.

    Args:
        trajectories: the folder of the trajectories.
        folder: of the training, where answers survive being killed; None: they do not.
        env: what is played.
    """

    def __init__(self, trajectories: Path, folder: Path | None, env: str) -> None:
        teacher = read_record(trajectories / "teacher.json", Teacher, "start the same command again, which writes it")
        self._expert, self._folder = load_expert(teacher.source, env, teacher.trust), folder
        if self._expert.policy is None:
            raise UserError(f"dagger_every asks the expert, and {teacher.source} is a dataset, which cannot answer")

    def kept(self, done: int) -> Iterator[Watched]:
        """What was asked up to iteration ``done``; later answers are of a training that was killed."""
        for path in sorted(self._folder.glob("asked_*.npz")) if self._folder else ():
            if int(path.stem.partition("_")[2]) <= done:
                with np.load(path) as data:
                    yield Watched(data["pictures"], data["actions"], data["starts"])

    def ask(self, pictured: Pictured, learner: Learner, episodes: int, done: int) -> Watched:
        """The expert's actions in so many episodes that the learner plays."""
        expert = ExpertActor(self._expert, pictured.envs, done)
        played = play(pictured, learner, episodes, self._expert.prepared, expert, watch=True)
        assert played.watched is not None
        if self._folder is not None:
            with replacing(self._folder / NAME.format(done)) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **played.watched._asdict())
        return played.watched
