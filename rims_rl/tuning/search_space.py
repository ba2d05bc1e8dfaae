"""What a search may try: YAML, in the idiom of rl_zoo3's spaces.

::

    learning_rate: {low: 1e-5, high: 1e-2, log: true}    a number; both ends whole: a whole number
    n_steps: [64, 128, 256]                              one of these
    policy_kwargs.net_arch: [[64], [64, 64]]             dots for keys of mappings; lists may be chosen too
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from rims_rl.common.errors import UserError
from rims_rl.config.layers import parse_overrides, read_mapping, shipped_sections
from rims_rl.core.registry import shares_options

Space = dict[str, Any]  # key -> range, as in YAML


def read_space(algo: str, core: str, file: Path | None) -> Space:
    """That of the user's file; else what the zoo has for the algorithm, for the kind of the core, and for the core."""
    if file is not None:
        space = read_mapping(file)
    else:
        shipped = shipped_sections("search_spaces.yml")
        kind = "rims" if shares_options("rims", core) else core
        space = shipped[algo] | shipped.get(kind, {}) | shipped.get(core, {})
    distributions(space, str(file or "search_spaces.yml"))
    return space


def distributions(space: Space, where: str) -> dict[str, BaseDistribution]:
    """What Optuna draws from."""
    return {str(key): _distribution(range_, f"{where}: {key}") for key, range_ in space.items()}


def settings_of(params: dict[str, Any]) -> dict[str, Any]:
    """What was drawn, as a layer of settings; words are read as YAML, in which :func:`_word` wrote lists."""
    words = parse_overrides(f"{key}={value}" for key, value in params.items() if isinstance(value, str))
    return params | words


def _distribution(range_: Any, where: str) -> BaseDistribution:
    try:
        if isinstance(range_, list) and range_:
            return CategoricalDistribution([_word(choice) for choice in range_])
        if isinstance(range_, dict) and {"low", "high"} <= set(range_) <= {"low", "high", "log", "step"}:
            whole = all(isinstance(range_[end], int) for end in ("low", "high"))
            return IntDistribution(**range_) if whole else FloatDistribution(**range_)
    except (ValueError, TypeError) as error:
        raise UserError(f"{where} is no range ({str(error).splitlines()[0]}), got {range_!r}") from error
    raise UserError(f"{where} must be a list to choose from, or low, high and maybe log and step, got {range_!r}")


def _word(choice: Any) -> bool | int | float | str | None:
    """Databases keep plain values only, so lists and mappings become YAML on one line."""
    if choice is None or isinstance(choice, bool | int | float | str):
        return choice
    text: str = yaml.safe_dump(choice, default_flow_style=True, width=10**6)
    return text.strip()
