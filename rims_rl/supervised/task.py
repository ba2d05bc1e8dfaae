"""What a supervised task is: its settings, its data, its network, its loss and its tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count, Fraction, NotNegative, Positive, Settings
from rims_rl.config.layers import Layer, parse_overrides, shipped_sections, validate
from rims_rl.core import Core, make_core, own_layers

FILE, ABLATIONS = "supervised.yml", "supervised_ablations.yml"
EXAMPLES = "hidden_size=300 or core_kwargs.communication=false"
Tests = dict[str, dict[str, float]]  # test -> measure -> value


class TaskConfig(Settings):
    """Settings that all tasks have. ``zoo_configs/supervised.yml`` gives all of them."""

    core: Annotated[str, Field(min_length=1)]
    num_rims: Count
    num_active: Count
    hidden_size: Count
    num_layers: Count  # null: the core's own number
    core_kwargs: dict[str, Any]

    iterations: Count
    batch_size: Count
    learning_rate: Positive
    max_grad_norm: Positive | None
    dropout: Fraction  # on what goes into the core and on what comes out
    stop_below: NotNegative  # training ends when the mean loss of the last 100 iterations is below
    test_every: Count  # iterations between tests on the way
    test_sequences: Count

    @field_validator("num_layers", mode="before")
    @classmethod
    def _own_layers(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None or "core" not in info.data:
            return value
        try:
            return own_layers(info.data["core"])
        except ValueError:  # there is no such core, which is said when it is to be made
            return 1


class Task(ABC):
    """One task with one configuration. Data follow from a seed and a number alone, so that any process can make them.

    Args:
        config: of this task.
        data_dir: where files are kept that a task downloads; None: in the user's cache.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    config_class: ClassVar[type[TaskConfig]] = TaskConfig
    workers: ClassVar[int] = 0  # processes that make data; 0 where that takes next to no time
    bounded: ClassVar[dict[str, float]] = {}  # measures between 0 and so much; the others are losses
    counted: ClassVar[str] = "core"  # whose parameters the page counts: the core's, or "all"
    data_settings: ClassVar[tuple[str, ...]] = ()  # results that differ in these are not compared
    compared_at: ClassVar[str] = "hidden_size"  # the same: every other memory is compared with RIMs
    config: Any

    def __init__(self, config: TaskConfig, data_dir: Path | None = None) -> None:
        self.config = config
        self.data_dir = data_dir

    def check(self) -> None:  # noqa: B027 - most tasks have nothing to say
        """A UserError for what is wrong with the settings, as far as it can be told before data are fetched."""

    @abstractmethod
    def network(self) -> nn.Module:
        """A new network. Its attribute ``core`` is the core."""

    @abstractmethod
    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        """Batch number ``index`` of the training with ``seed``."""

    @abstractmethod
    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        """What training makes smaller."""

    @abstractmethod
    def tests(self, network: nn.Module, sequences: int) -> Tests:
        """How well the network does, with ``sequences`` of each kind, the same for every network."""

    def schedule(self, optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau | None:
        """What lowers the learning rate; it gets every point of the curve. Batches are new ones each time, so that is
        the loss on data never seen."""
        return None

    def record(self, network: nn.Module) -> dict[str, Any]:
        """Plain data for the pictures of the page."""
        return {}

    def watch(self, network: nn.Module) -> dict[str, Any]:
        """Plain data to keep beside each test on the way."""
        return {}

    def begin(self, folder: Path | None, done: int) -> None:  # noqa: B027
        """Before the first iteration after ``done``; ``folder`` is that of the training, if it has one."""

    def after_iteration(self, network: nn.Module, seed: int, done: int) -> None:  # noqa: B027
        """With ``done`` of them; a task may gather more data."""

    def core(self, input_size: int) -> Core:
        config = self.config
        try:
            return make_core(
                config.core, input_size, config.hidden_size, config.num_rims, config.num_active, config.num_layers,
                **config.core_kwargs,
            )  # fmt: skip
        except ValueError as error:
            raise UserError(str(error)) from error


class CoreNetwork(nn.Module):
    """Encoder, core and head over a sequence `(T, B, ...)`, with dropout before and after the core."""

    def __init__(self, encoder: nn.Module, core: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.encoder, self.core = encoder, core
        self.head = nn.Linear(core.output_size, outputs)  # type: ignore[arg-type]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, last: int) -> Tensor:
        """The outputs of the last steps, `(last, B, outputs)`."""
        output, _ = self.core(self.dropout(self.encoder(x)))
        result: Tensor = self.head(self.dropout(output[-last:]))
        return result


def generator(*numbers: int) -> torch.Generator:
    """Random numbers that follow from ``numbers``."""
    state = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator().manual_seed(state)


TRAINING, TESTING = 0, 1  # first number of a generator: no test sequence is among those of training


def load(task: type[Task], settings: Sequence[str] | Mapping[str, Any] = ()) -> TaskConfig:
    """The settings of a task, and those that are given: by name, or as ``key=value``.

    ``core_kwargs`` that are given are all there are; ``core_kwargs.name`` changes one of them, or of the zoo's.
    """
    sections, given = shipped_sections(FILE), _by_name(settings)
    layers: list[Layer] = [(f"{FILE}: {name}", sections[name]) for name in ("default", task.name)]
    if (own := f"{task.name} with {given.get('core')}") in sections:
        layers.append((f"{FILE}: {own}", sections[own]))
    if "core_kwargs" in given:
        layers.append(("`settings`", {"core_kwargs": {}}))  # what mappings do in layers is to be merged
        given = {"core_kwargs": given["core_kwargs"]} | given  # before single ones, in whatever order they came
    if given:
        layers.append(("`settings`", given))
    return validate(task.config_class, layers)[0]


def load_ablations(task: type[Task], settings: Sequence[str] | Mapping[str, Any] = ()) -> list[TaskConfig]:
    """RIMs as they are, then those of the ablation table, of which each RIM has as many units."""
    if task.name not in (tables := shipped_sections(ABLATIONS)):
        raise UserError(f"{task.name} has no ablations; {' and '.join(tables)} have")
    whole = load(task, settings)
    units = whole.hidden_size // whole.num_rims
    configs = [whole]
    for rims, active, options in tables[task.name]:
        sizes = {"num_rims": rims, "num_active": active, "hidden_size": rims * units}
        given = {f"core_kwargs.{key}": value for key, value in options.items()}
        configs.append(load(task, {**_by_name(settings), **sizes, **given}))
    return configs


def _by_name(settings: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    return dict(settings) if isinstance(settings, Mapping) else parse_overrides(settings, EXAMPLES)
