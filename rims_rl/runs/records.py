"""The JSON files that we write and read again: what they hold, and one function that reads them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError

from rims_rl.common.errors import UserError
from rims_rl.common.files import write_json

Interval = Annotated[list[float], Field(min_length=2, max_length=2)]


class Record(BaseModel):
    """What is read of a file; it may hold more."""

    model_config = ConfigDict(extra="allow", strict=True)


RecordT = TypeVar("RecordT", bound=Record)


def read_record(path: Path, model: type[RecordT], remedy: str) -> RecordT:
    """The record in the JSON file ``path``. ``remedy`` is what to do about one that is not as it should be."""
    return model.model_validate(read_checked(path, model, remedy))


def read_checked(path: Path, model: type[Record], remedy: str) -> dict[str, Any]:
    """The same as plain data, as it was written. ``remedy`` is what to do about one that is not as it should be."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        model.model_validate(data)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        reason = f"{'.'.join(map(str, detail['loc'])) or 'all'}: {detail['msg']}"
        raise UserError(f"{path} is damaged ({reason}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({str(error).splitlines()[0]}); {remedy}") from error
    return data


def write_record(path: Path, record: Record) -> None:
    """Write what :func:`read_record` reads."""
    write_json(path, record.model_dump(by_alias=True))


class Machine(Record):
    cpu: str
    cores: int | None


class Provenance(Record):
    """What :func:`rims_rl.runs.provenance.provenance` gives, but for the seconds."""

    date: str
    rims_rl: str
    commit: str | None
    torch: str
    numpy: str
    machine: Machine


class RunResult(Provenance):
    """``run.json``: what a run was and how far it came."""

    version: Literal[1] = 1  # of what the file holds; version 0.1 wrote none
    command: str | None = None
    system: dict[str, Any] = Field(default_factory=dict)  # what Stable-Baselines3 says of it
    env: str
    algo: str
    seed: int
    steps: NonNegativeInt
    finished: bool
    resumed_from: list[NonNegativeInt]
    seconds: NonNegativeFloat


class Summary(Record):
    """Scores of several episodes."""

    mean: float
    mean_95: Interval
    median: float
    std: float
    episodes: NonNegativeInt
    deterministic: bool | None


class EvaluationResult(Summary):
    """``evaluation.json``: how well one policy did, or random actions."""

    version: Literal[1] = 1  # of what the file holds; version 0.1 wrote none
    run: str  # the name of its folder or file, or "random"
    env: dict[str, Any]  # what rims_rl.envs.names.Resolved holds
    seed: int
    steps: int | None  # for which it was trained
    drop: list[int] = []
    force: list[int] = []
    scores: list[float] = []
    lengths: list[int] = []
    file: Path | None = Field(default=None, exclude=True)  # where it is


class Played(Record):
    """Episodes in one variant of an environment."""

    success: float | None
    success_95: Interval | None = None
    return_: float = Field(alias="return")
    drop: float | None = None
    drop_95: Interval | None = None


class VariantsPlayed(Record):
    variants: dict[str, Played]
    reference: str
    notes: list[str]


class Point(Record):
    """Of a learning curve."""

    steps: float
    mean: float
    episodes: NonNegativeInt


class OnTheWay(Record):
    steps: NonNegativeInt
    variants: dict[str, Played]


class Seconds(Record):
    training: NonNegativeFloat
    evaluation: NonNegativeFloat


class JobResult(Provenance):
    """One finished job of a suite."""

    definition: dict[str, Any]
    steps: NonNegativeInt
    resumed_from: list[NonNegativeInt]
    parameters: dict[str, NonNegativeInt]
    curve: list[Point]
    on_the_way: list[OnTheWay]
    evaluation: VariantsPlayed | Summary
    without: dict[str, Played] | None = None  # each RIM, by its number, and "none" of them
    life: dict[str, Any] | None = None  # of RIMs
    random: Summary | None = None
    seconds: Seconds


class TestSeconds(Record):
    training: NonNegativeFloat
    tests: NonNegativeFloat


class SupervisedDefinition(Record):
    task: str
    seed: int
    config: dict[str, Any]


class PointOnTheWay(Record):
    iteration: NonNegativeInt
    tests: dict[str, dict[str, Any]]


class SupervisedResult(Provenance):
    """One finished training of a supervised task. Losses that are not finite are null."""

    definition: SupervisedDefinition
    iterations: NonNegativeInt
    stopped: str | None
    tests: dict[str, dict[str, Any]]
    curve: list[Annotated[list[float | None], Field(min_length=2, max_length=2)]]
    on_the_way: list[PointOnTheWay]
    record: dict[str, Any]
    life: dict[str, Any] | None = None  # of RIMs
    parameters: dict[str, NonNegativeInt]
    resumed_from: list[NonNegativeInt]
    seconds: TestSeconds
    threads: int
