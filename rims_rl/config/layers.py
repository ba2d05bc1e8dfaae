"""Settings in layers: YAML files and single values, put together, checked, and with where each value comes from.

Each layer overrides the one before. Mappings are merged key by key (an empty one clears what was there), and everything
else is replaced. ``core_kwargs`` belong to a core: a layer that changes ``core`` starts without them, but for those
that another kind of RIMs has too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError

from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean

Model = TypeVar("Model", bound=BaseModel)
Layer = tuple[str, dict[str, Any]]  # where it comes from, for messages, and its values


def validate(
    model: type[Model], layers: Iterable[Layer], hint: Callable[[str], str | None] = lambda key: None
) -> tuple[Model, dict[str, str]]:
    """The layers put together and checked, and where each value comes from; ``hint`` may know an unknown key."""
    values, sources = _merge(layers)
    try:
        return model.model_validate(unflatten(values)), sources
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
    if hint is None:
        hint = did_you_mean(key, model.model_fields, f"the keys are {', '.join(model.model_fields)}")
    return f"there is no key {key!r} (value {value!r}); {hint}"


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


def parse_overrides(
    overrides: Iterable[str],
    examples: str = "n_steps=64 or policy_kwargs.net_arch=[64]",
    option: str = "settings",
) -> dict[str, Any]:
    """``key=value``, with the value in YAML, as a layer; ``option`` is what they were given as."""
    layer = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise UserError(f"`{option}` {override!r} must be key=value, such as {examples}")
        layer[key] = _read_yaml(value, f"`{option}` {override!r}")
    return layer


def parse_wrappers(texts: Iterable[str]) -> list[Any]:
    """Dotted paths, each alone or with arguments in YAML: ``my_module.MyWrapper: {size: 3}``."""
    return [_read_yaml(text, f"`env_wrapper` {text!r}") for text in texts]


def parse_mapping(text: str, where: str) -> dict[str, Any]:
    """``"freq=10, name=mine"``, with values in YAML: keyword arguments."""
    pairs = re.split(r",(?=\s*\w+\s*=)", text) if text.strip() else []
    if bad := next((pair for pair in pairs if not re.match(r"\s*\w+\s*=", pair)), None):
        raise UserError(f"{where}: {bad!r} must be key=value, with commas between them")
    parts = (pair.partition("=") for pair in pairs)
    return {key.strip(): _read_yaml(value, where) for key, _, value in parts}


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings -> one, whose keys have dots."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict) and value
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, Any]:
    """The other way round."""
    values: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, key = name.split(".")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[key] = value
    return values


def _lost_options(options: list[str], before: Any, now: Any) -> list[str]:
    """Which of a core's options another core does not take over."""
    from rims_rl.core.registry import fixed_options, shares_options  # it loads torch, which help does without

    if not shares_options(before, now):
        return options
    return [key for key in options if key.split(".")[1] in fixed_options(now)]


def _merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values with dots in their keys, and where each comes from; later layers win."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        flat = flatten(layer)
        options = [key for key in values if key.startswith("core_kwargs.")]
        if options and flat.get("core", values["core"]) != values["core"]:
            lost = _lost_options(options, values["core"], flat["core"])
            for key in lost:
                del values[key], sources[key]
            if len(lost) == len(options):
                flat = {"core_kwargs": {}} | flat
        for key, value in flat.items():
            for other in list(values):  # a mapping and what is in it cannot both stay
                if other.startswith(f"{key}.") or key.startswith(f"{other}."):
                    del values[other], sources[other]
            values[key], sources[key] = value, source
    return values, sources
