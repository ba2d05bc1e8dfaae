"""What a saved policy says of itself, as plain data: its schema, and whether its weights can be as large as it says.

Anybody may have written it: one kilobyte of it must not take gigabytes, or for ever, before it is found to be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from rims_rl.common.env_options import EnvOptions
from rims_rl.common.errors import UserError

FORMAT = 1
SMALL = 2**18  # numbers in an observation that no weights have to account for


def _numbers(value: Any) -> Any:
    try:
        np.array(value, dtype=float)
    except (TypeError, ValueError) as error:  # infinity is text, and lists have one form
        raise ValueError("numbers") from error
    return value


Numbers = Annotated[float | str | list[Any], AfterValidator(_numbers)]
Dtype = Literal[
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Box(_Model):
    type: Literal["Box"]
    low: Numbers
    high: Numbers
    shape: list[NonNegativeInt]
    dtype: Dtype

    def size(self) -> int:
        return math.prod(self.shape)


class _Discrete(_Model):
    type: Literal["Discrete"]
    n: PositiveInt
    start: Annotated[int, Field(ge=-(2**31), lt=2**31)]

    def size(self) -> int:
        return self.n


class _MultiDiscrete(_Model):
    type: Literal["MultiDiscrete"]
    nvec: Annotated[list[PositiveInt], Field(min_length=1)]

    def size(self) -> int:
        return sum(self.nvec)


class _MultiBinary(_Model):
    type: Literal["MultiBinary"]
    n: PositiveInt | list[PositiveInt]

    def size(self) -> int:
        return self.n if isinstance(self.n, int) else math.prod(self.n)


_Plain = Annotated[_Box | _Discrete | _MultiDiscrete | _MultiBinary, Field(discriminator="type")]


class _Dict(_Model):
    type: Literal["Dict"]
    spaces: dict[str, _Plain]

    def size(self) -> int:
        return sum(part.size() for part in self.spaces.values())


_Observations = Annotated[_Box | _Discrete | _MultiDiscrete | _MultiBinary | _Dict, Field(discriminator="type")]


class _PolicyArguments(_Model):
    """``policy_kwargs`` of our policies, without classes and functions."""

    core: str = "rims"
    num_rims: PositiveInt = 6
    num_active: PositiveInt = 4
    rim_size: PositiveInt | None = None
    num_layers: PositiveInt | None = None
    critic: Literal["shared", "separate", "none"] | None = None
    core_kwargs: dict[str, Any] | None = None
    precision: Literal["float32", "bf16"] = "float32"
    columns: NonNegativeInt = 0
    input: Literal["vector", "spatial", "keys", "cells"] | None = None
    net_arch: list[PositiveInt] | dict[Literal["pi", "vf"], list[PositiveInt]] | None = None
    activation_fn: str = "Tanh"
    ortho_init: bool = True
    log_std_init: float = 0.0
    full_std: bool = True
    use_sde: bool = False
    use_expln: bool = False
    squash_output: bool = False
    features_extractor_kwargs: dict[str, Any] | None = None
    share_features_extractor: bool = True
    normalize_images: bool = True
    lstm_hidden_size: PositiveInt | None = None
    n_lstm_layers: PositiveInt | None = None
    shared_lstm: bool | None = None
    enable_critic_lstm: bool | None = None
    lstm_kwargs: dict[str, Any] | None = None


class Statistics(_Model):
    """Of the observations that training has seen."""

    mean: Numbers
    var: Numbers
    count: float


class Normalization(_Model):
    """How observations were normalized: as Stable-Baselines3's ``VecNormalize`` does."""

    observations: dict[str, Statistics]  # by key for Dict observations, else under ""
    clip: float
    epsilon: float


class Score(_Model):
    """Of an exported policy, see ``rims-rl evaluate``."""

    mean: float
    mean_95: list[float]
    median: float
    std: float
    episodes: int
    deterministic: bool
    seed: int


class Description(BaseModel):
    """``policy.json``. What an export adds to it is for people to read, and may be anything."""

    model_config = ConfigDict(extra="allow", strict=True)

    format: Literal[1]
    policy: str
    policy_kwargs: _PolicyArguments
    observation_space: _Observations
    action_space: _Plain
    use_sde: bool
    env: str | None = None
    env_options: EnvOptions = EnvOptions()
    algo: str | None = None
    seed: int | None = None
    steps: NonNegativeInt | None = None
    init_from: str | None = None
    carry: str | None = None
    columns: list[str] = []
    normalization: Normalization | None = Field(
        default=None,
        validation_alias=AliasChoices("normalization", "normalisation"),  # version 0.1 wrote the second
    )
    score: float | Score | None = None
    signature: str | None = None  # of whoever trained it, if it names code of their own

    def to_json(self) -> dict[str, Any]:
        """As it is written: what was given, without defaults."""
        return self.model_dump(exclude_unset=True)

    def named_code(self) -> list[str]:
        """Code of somebody's own, which would be imported to play the policy."""
        return named_code(self.env, self.env_options, self.policy_kwargs.core)

    def what_is_signed(self) -> dict[str, Any]:
        """All that such code is called with."""
        given = {"env": self.env, "env_options": self.env_options.given(), "core": self.policy_kwargs.core}
        return given | {"core_kwargs": self.policy_kwargs.core_kwargs}

    def given_policy_kwargs(self) -> dict[str, Any]:
        """What the policy was made with, without defaults except the core, whose default was another once."""
        return {"core": self.policy_kwargs.core} | self.policy_kwargs.model_dump(exclude_unset=True)


class ExportedDescription(Description):
    """Of a policy that was exported, with what people want to know of it."""

    score: Score | None = None
    action_meanings: list[str] | None
    date: str
    rims_rl: str
    commit: str | None
    torch: str
    numpy: str


def named_code(env: str | None, options: EnvOptions, core: str) -> list[str]:
    """What of a user's own a run names, in words."""
    code = [f"the core {core}"] if "." in core else []
    code += [f"the environment {env}"] if env and ":" in env else []
    code += [f"the package {package}" for package in options.gym_packages or ()]
    paths = [wrapper if isinstance(wrapper, str) else next(iter(wrapper)) for wrapper in options.env_wrapper or ()]
    return code + [f"the wrapper {path}" for path in paths]


def check_description(data: Any, where: str) -> Description:
    """What ``data`` says; a UserError names the first thing in it that is not as it should be."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"{where} is not a policy description of format {FORMAT}, which this version of rims-rl reads")
    try:
        description = Description.model_validate(data)
        _check_statistics(description)
        description.to_json()  # refuses what is nested too deep to be written again
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place, got = ".".join(map(str, detail["loc"])), repr(detail["input"])[:80]
        raise UserError(
            f"{where} does not describe a policy that can be built: {place}: {detail['msg']}, got {got}"
        ) from error
    except ValueError as error:
        raise UserError(f"{where} does not describe a policy that can be built: {error}") from error
    return description


def check_against_weights(description: Description, weights: dict[str, torch.Tensor], file: str) -> None:
    """A ValueError if a checked description speaks of more than the weights can hold. Nothing is built before."""
    total = sum(weight.numel() for weight in weights.values())
    options, seen, done = description.policy_kwargs, description.observation_space, description.action_space
    if max(options.num_layers or 1, options.n_lstm_layers or 1, options.columns) > len(weights):
        raise ValueError(f"it has more layers than the {len(weights)} weights of {file}")
    if (number := max(_integers(description.given_policy_kwargs()), default=0)) > max(total, len(weights)):
        raise ValueError(f"{number} is more than the {total:,} numbers that {file} holds")
    if seen.size() > max(SMALL, 4 * total):  # convolutions may have fewer weights than what they read
        raise ValueError(f"observations of {seen.size():,} numbers are too large for the {total:,} of {file}")
    if done.size() > total:
        raise ValueError(f"actions of {done.size():,} numbers are too large for the {total:,} of {file}")


def _check_statistics(description: Description) -> None:
    if description.normalization is None:
        return
    space = description.observation_space
    parts = space.spaces if isinstance(space, _Dict) else {"": space}
    if not description.normalization.observations:
        raise ValueError("normalization: it is of no observations")
    for key, statistics in description.normalization.observations.items():
        part = parts.get(key)
        if not isinstance(part, _Box):
            raise ValueError(f"normalization: there is no Box {key!r} among the observations")
        for name, numbers in (("mean", statistics.mean), ("var", statistics.var)):
            array = np.array(numbers, dtype=float)
            if array.shape != tuple(part.shape):
                raise ValueError(f"normalization: {name} of {key!r} must have shape {part.shape}, got {array.shape}")
            if not np.isfinite(array).all():  # None becomes NaN
                raise ValueError(f"normalization: {name} of {key!r} must be finite numbers")


def _integers(value: Any) -> Iterator[int]:
    """All that are in it, at whatever depth."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _integers(part)
    elif isinstance(value, int | float) and math.isfinite(value):
        yield math.ceil(value)


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A Gymnasium space as plain data."""
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {key: space_to_json(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Box):
        low, high = (_shorten(bound) for bound in (space.low, space.high))
        return {"type": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    raise UserError(f"a space of type {type(space).__name__} cannot be written down")


def space_from_json(data: dict[str, Any]) -> spaces.Space[Any]:
    """The space that :func:`space_to_json` wrote down."""
    kind = data["type"]
    if kind == "Dict":
        return spaces.Dict({key: space_from_json(part) for key, part in data["spaces"].items()})
    if kind == "Box":
        shape, dtype = tuple(int(size) for size in data["shape"]), np.dtype(data["dtype"])
        low, high = (np.broadcast_to(np.array(data[key], dtype=float), shape) for key in ("low", "high"))
        return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(data["n"]), start=int(data["start"]))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(data["nvec"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    raise ValueError(f"unknown space {kind!r}")


def _shorten(bound: np.ndarray) -> Any:
    """One number if all are equal. JSON has no infinity: it is written as text."""
    numbers = bound.astype(float)
    if numbers.size and (numbers == numbers.flat[0]).all():
        numbers = numbers.flat[0]
    return np.vectorize(lambda x: x if np.isfinite(x) else str(x), otypes=[object])(numbers).tolist()
