"""Hyperparameters: the YAML files of ``zoo_configs/``, a user's own file and ``--set``, in layers, and checked.

Each layer overrides the one before: ``default`` -> ``atari`` or ``minigrid`` -> the environment's section -> the same
of the user's file -> ``--set``. Mappings are merged key by key (an empty one clears what was there), and everything
else is replaced.
``core_kwargs`` belong to a core: a layer that changes ``core`` starts without them.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from pydoc import locate
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from rims_rl.envs.names import Resolved, resolve
from rims_rl.errors import UserError

__all__ = [
    "A2CConfig", "Count", "Fraction", "Layer", "Loaded", "NotNegative", "PPOConfig", "Positive", "TrainConfig",
    "human_scores", "load", "load_saved", "paper_scores", "parse_overrides", "print_config", "print_configs",
    "read_mapping", "shipped_sections", "validate", "wanted",
]  # fmt: skip


def _whole(value: Any) -> Any:
    """``1e6`` is a float in YAML, and a whole number to everybody else."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _positive_or_linear(value: Any) -> float | str:
    linear = isinstance(value, str) and value.startswith("lin_")
    try:
        number = float(value[len("lin_") :] if linear else value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or (isinstance(value, str) and not linear) or not 0 < number < math.inf:
        raise ValueError("a positive number, or one that falls linearly to 0, such as lin_2.5e-4")
    return value if linear else number


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Schedule = Annotated[float | str, PlainValidator(_positive_or_linear)]  # written as rl_zoo3 does: 3e-4 or lin_3e-4


class TrainConfig(BaseModel):
    """What both algorithms have. No field has a default here: the section ``default`` of each YAML file gives them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    _RUN: ClassVar = {"n_timesteps", "n_envs", "policy", "normalize"}
    POLICY: ClassVar = ("core", "num_rims", "num_active", "rim_size", "critic", "core_kwargs")

    n_timesteps: Count
    n_envs: Count
    policy: Literal["MlpRimsPolicy", "CnnRimsPolicy", "MultiInputRimsPolicy"]
    normalize: bool  # observations and rewards, by Stable-Baselines3's VecNormalize

    core: Annotated[str, Field(min_length=1)]
    num_rims: Count
    num_active: Count
    rim_size: Count
    critic: Literal["shared", "separate", "none"]
    core_kwargs: dict[str, Any]
    policy_kwargs: dict[str, Any]

    learning_rate: Schedule
    n_steps: Count
    gamma: Fraction
    gae_lambda: Fraction
    normalize_advantage: bool
    ent_coef: NotNegative
    vf_coef: NotNegative
    max_grad_norm: Positive
    sequence_length: Count | None

    def algorithm_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the algorithm's class, except ``policy_kwargs``."""
        names = set(type(self).model_fields) - self._RUN - {*self.POLICY, "policy_kwargs"}
        return {name: _schedule(value) for name, value in self.model_dump(include=names).items()}

    def policy_arguments(self) -> dict[str, Any]:
        """``policy_kwargs`` of the algorithm's class."""
        options = {key: locate(value) if _is_path(key, value) else value for key, value in self.policy_kwargs.items()}
        return self.model_dump(include=set(self.POLICY)) | options

    @property
    def minibatch(self) -> int:
        """How many steps one gradient is made of."""
        return self.n_steps * self.n_envs


class PPOConfig(TrainConfig):
    batch_size: Count
    n_epochs: Count
    clip_range: Schedule
    clip_range_vf: Schedule | None
    target_kl: Positive | None

    @property
    def minibatch(self) -> int:
        return min(self.batch_size, super().minibatch)


class A2CConfig(TrainConfig):
    use_rms_prop: bool
    rms_prop_eps: Positive


ALGORITHMS: dict[str, type[TrainConfig]] = {"ppo": PPOConfig, "a2c": A2CConfig}
SHARED_SECTIONS = ("default", "atari", "minigrid")


class Loaded(NamedTuple):
    config: TrainConfig
    sources: dict[str, str]  # key, with dots inside mappings -> "ppo.yml: atari", the user's file, or "--set"


Model = TypeVar("Model", bound=BaseModel)
Layer = tuple[str, dict[str, Any]]  # where it comes from, for messages, and its values


def load(
    env: str, algo: str, *, file: Path | None = None, overrides: Sequence[str] = (), layers: Sequence[Layer] = ()
) -> Loaded:
    """What training ``algo`` on ``env`` uses, and where each value comes from.

    Args:
        env: a name that :func:`rims_rl.envs.names.resolve` knows.
        algo: ``"ppo"`` or ``"a2c"``.
        file: a user's YAML file: keys and values, or sections like those of ``zoo_configs/``.
        overrides: ``key=value``, with the value in YAML and dots for keys of mappings: ``policy_kwargs.net_arch=[64]``.
        layers: more of them, such as a suite has, after the file and before the overrides.

    Raises:
        UserError: one sentence that names the file or ``--set``, the key, the value, and what would be right.
    """
    model, resolved = _model(algo), resolve(env)
    shipped = shipped_sections(f"{algo}.yml")
    all_layers = [(f"{algo}.yml: {name}", shipped[name]) for name in _applying(shipped, resolved)]
    if file is not None:
        all_layers += _user_layers(file, model, resolved)
    all_layers += layers
    if overrides:
        all_layers.append(("--set", parse_overrides(overrides)))
    return _validated(model, all_layers)


def load_saved(file: Path, algo: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """What a run's ``config.yml`` says, which holds every key, whatever the zoo says today."""
    model, saved = _model(algo), read_mapping(file)
    if missing := set(model.model_fields) - set(saved):
        raise UserError(f"{file} lacks the key {min(missing)}, so that the run cannot be resumed; add it")
    return _validated(model, [(str(file), saved), ("--set", parse_overrides(overrides))]).config


def paper_scores() -> dict[str, dict[str, float]]:
    """The paper's Atari table: game -> its scores ``rims`` and ``lstm``, and what the paper prints after "±" as
    ``rims_error`` and ``lstm_error``."""
    table = shipped_sections("atari_scores.yml")
    return {game: {column: float(score) for column, score in row.items()} for game, row in table.items()}


def human_scores() -> dict[str, dict[str, float]]:
    """Game -> what ``random`` play and a ``human`` tester score."""
    return dict(shipped_sections("atari_human.yml"))


def print_configs() -> None:
    """A table of all sections of ``zoo_configs/``, with what they come to."""
    from rich.console import Console
    from rich.table import Table

    table = Table("algo", "section", "policy", "steps", "core", title="zoo_configs")
    table.columns[3].justify = "right"
    for algo, section, config in _all_configs():
        core = f"{config.core}, {config.num_active} of {config.num_rims} x {config.rim_size}"
        table.add_row(algo, section, config.policy, f"{config.n_timesteps:,}", core)
    Console().print(table)


def print_config(env: str, algo: str, file: Path | None = None, overrides: Sequence[str] = ()) -> None:
    """A table of what training uses, with where each value comes from."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    config, sources = load(env, algo, file=file, overrides=overrides)
    table = Table("key", "value", "from", title=Text(f"{algo} on {env}"))
    for key, value in _flatten(config.model_dump()).items():
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        table.add_row(key, Text(shown), Text(sources[key]))  # Text: [64] is not markup
    Console().print(table)


def _all_configs() -> Iterator[tuple[str, str, TrainConfig]]:
    """Every section of every algorithm's file, with the sections below it."""
    for algo, model in ALGORITHMS.items():
        sections = shipped_sections(f"{algo}.yml")
        for name in sections:
            if name in SHARED_SECTIONS:
                below = dict.fromkeys(("default", name))
                yield algo, name, _validated(model, [(f"{algo}.yml: {part}", sections[part]) for part in below]).config
            else:
                yield algo, name, load(name, algo).config


# Reading


class _Loader(yaml.SafeLoader):
    """YAML 1.1, as PyYAML reads it, except that 1e-4 is a number as in YAML 1.2, and not a word."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _read_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", line {mark.line + 1}" if mark and "\n" in text.strip() else ""
        reason = problem or str(error).splitlines()[0]
        raise UserError(f"{where} is not YAML{line}: {reason}; write it as `key: value` lines") from error


def read_mapping(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UserError(f"{file} cannot be read ({reason}); give a YAML file of `key: value` lines") from error
    data = _read_yaml(text, str(file))
    if not isinstance(data, dict) or not data:
        raise UserError(f"{file} must hold `key: value` lines, got {data!r}")
    return data


@cache
def shipped_sections(name: str) -> dict[str, Any]:
    """What a YAML file of ``zoo_configs/`` holds."""
    sections: dict[str, Any] = _read_yaml((resources.files("rims_rl.zoo_configs") / name).read_text("utf-8"), name)
    return sections


def _user_layers(file: Path, model: type[TrainConfig], resolved: Resolved) -> list[Layer]:
    """A user's file has sections if it holds only mappings and none of them is called like a key."""
    data = read_mapping(file)
    if set(data) & set(model.model_fields) or not all(isinstance(value, dict) for value in data.values()):
        return [(str(file), data)]
    for name in data:
        _check_section(str(name), file, model)
    applying = _applying(data, resolved)
    if not applying:
        raise UserError(
            f"{file} has no section for {resolved.name}, only {', '.join(data)}; name one {resolved.name} or default"
        )
    return [(f"{file}: {name}", data[name]) for name in applying]


def _check_section(name: str, file: Path, model: type[TrainConfig]) -> None:
    if name in SHARED_SECTIONS:
        return
    try:
        resolve(name)
    except UserError as error:
        close = difflib.get_close_matches(name, [*SHARED_SECTIONS, *model.model_fields], n=1)
        hint = f"did you mean {close[0]}?" if close else str(error)
        raise UserError(f"{file}: {name!r} is neither a key nor a section; {hint}") from error


def _applying(sections: dict[str, Any], resolved: Resolved) -> list[str]:
    """The names of the sections that hold for an environment, the most special last."""
    shared = ("default", resolved.family)
    own = [name for name in sections if name not in SHARED_SECTIONS and resolve(name) == resolved]
    return [name for name in shared if name and name in sections] + own


def parse_overrides(
    overrides: Iterable[str], examples: str = "n_steps=64 or policy_kwargs.net_arch=[64]"
) -> dict[str, Any]:
    """What ``--set`` gives, as a layer."""
    layer = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise UserError(f"--set {override!r} must be key=value, such as {examples}")
        layer[key] = _read_yaml(value, f"--set {override!r}")
    return layer


# Layers


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings -> one, whose keys have dots."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict) and value
        flat |= _flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _unflatten(flat: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, key = name.split(".")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[key] = value
    return values


def _merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values with dots in their keys, and where each comes from; later layers win."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        flat = _flatten(layer)
        has_options = any(key.startswith("core_kwargs.") for key in values)
        if has_options and flat.get("core", values["core"]) != values["core"]:
            flat = {"core_kwargs": {}} | flat
        for key, value in flat.items():
            for other in list(values):  # a mapping and what is in it cannot both stay
                if other.startswith(f"{key}.") or key.startswith(f"{other}."):
                    del values[other], sources[other]
            values[key], sources[key] = value, source
    return values, sources


# Checking


def _model(algo: str) -> type[TrainConfig]:
    if algo not in ALGORITHMS:
        raise UserError(f"--algo: there is no algorithm called {algo!r}; give {' or '.join(ALGORITHMS)}")
    return ALGORITHMS[algo]


def _validated(model: type[TrainConfig], layers: Iterable[Layer]) -> Loaded:
    config, sources = validate(model, layers, _algorithms_with)
    _check_policy_kwargs(config, sources)
    _check_sizes(config, sources)
    return Loaded(config, {key: sources[key] for key in _flatten(config.model_dump())})


def validate(
    model: type[Model], layers: Iterable[Layer], hint: Callable[[str], str | None] = lambda key: None
) -> tuple[Model, dict[str, str]]:
    """The layers put together and checked, and where each value comes from; ``hint`` may know an unknown key."""
    values, sources = _merge(layers)
    try:
        return model.model_validate(_unflatten(values)), sources
    except ValidationError as error:
        detail = error.errors()[0]
        key = str(detail["loc"][0])
        where = next(source for name, source in sources.items() if name.split(".")[0] == key)
        if detail["type"] == "extra_forbidden":
            raise UserError(f"{where}: {_unknown(key, detail['input'], model, hint(key))}") from error
        null = " or null" if type(None) in get_args(model.model_fields[key].annotation) else ""
        raise UserError(f"{where}: {key} must be {wanted(detail['msg'])}{null}, got {detail['input']!r}") from error


BEGINNINGS = {
    "String should have": "a word of",
    "List should have": "a list of",
    "Dictionary should have": "a mapping of",
}


def wanted(message: str) -> str:
    """What would be right, from what pydantic says is wrong."""
    message = re.sub(r"^(Value error, |Input should be )", "", message)
    message = re.sub(r"^a valid dictionary( or instance of \w+)?", "a mapping of keys to values", message)
    for begin, ours in BEGINNINGS.items():
        message = message.replace(begin, ours)
    return message.split(" after validation")[0]


def _unknown(key: str, value: Any, model: type[BaseModel], hint: str | None) -> str:
    """A sentence about a key that does not exist."""
    close = difflib.get_close_matches(key, model.model_fields, n=1)
    if hint is None:
        hint = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(model.model_fields)}"
    return f"there is no key {key!r} (value {value!r}); {hint}"


def _algorithms_with(key: str) -> str | None:
    others = [algo for algo, other in ALGORITHMS.items() if key in other.model_fields]
    return f"only {others[0]} has it" if others else None


def _check_policy_kwargs(config: TrainConfig, sources: dict[str, str]) -> None:
    if not config.policy_kwargs:
        return  # without importing torch
    known = _policy_options(config.policy)
    for key, value in config.policy_kwargs.items():
        name = f"policy_kwargs.{key}"
        where = next(source for other, source in sources.items() if f"{other}.".startswith(f"{name}."))
        if key in type(config).model_fields:
            raise UserError(f"{where}: write {key} instead of {name} (value {value!r}): it is a key of its own")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it takes {', '.join(known)}"
            raise UserError(f"{where}: {config.policy} takes no {name} (value {value!r}); {hint}")
        if _is_path(key, value) and not callable(locate(value)):
            raise UserError(f"{where}: {name} must be a dotted path such as torch.nn.ReLU, got {value!r}")


def _policy_options(policy: str) -> list[str]:
    """What a policy's constructor takes besides spaces, schedule and the keys of :class:`TrainConfig`."""
    from stable_baselines3.common.policies import ActorCriticPolicy

    from rims_rl import agents

    # sb3-contrib's class in between takes LSTM sizes, for which we have keys of our own
    classes = [agents.MlpRimsPolicy, getattr(agents, policy), ActorCriticPolicy]
    names = {name for each in classes for name in inspect.signature(each).parameters}
    given = {"observation_space", "action_space", "lr_schedule", "kwargs", *TrainConfig.model_fields}
    return sorted(names - given)


def _check_sizes(config: TrainConfig, sources: dict[str, str]) -> None:
    """What fits alone may not fit together. The algorithms take more, with a warning; here minibatches are equal, so
    that runs compare."""
    rollout, batch = config.n_steps * config.n_envs, config.minibatch
    if rollout % batch:
        fitting = max(size for size in range(1, batch + 1) if rollout % size == 0)
        raise UserError(
            f"{sources['batch_size']}: batch_size must divide n_steps * n_envs = {config.n_steps} * {config.n_envs} = "
            f"{rollout}, got {batch}; {fitting} would do"
        )
    longest = math.gcd(config.n_steps, batch)
    if config.sequence_length is not None and longest % config.sequence_length:
        raise UserError(
            f"{sources['sequence_length']}: sequence_length must divide n_steps = {config.n_steps} and the minibatch "
            f"of {batch} steps, got {config.sequence_length}; {longest} would do"
        )
    if config.core == "rims" and config.num_active > config.num_rims:
        raise UserError(
            f"{sources['num_active']}: num_active must be at most num_rims = {config.num_rims} "
            f"({sources['num_rims']}), got {config.num_active}"
        )


def _is_path(key: str, value: Any) -> bool:
    """Whether a policy's argument is a class or function, given by its dotted path."""
    return isinstance(value, str) and key.endswith(("_class", "_fn"))


def _schedule(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("lin_"):
        from stable_baselines3.common.utils import LinearSchedule

        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value
