"""A suite about transfer, made of a few options instead of a YAML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.common.options import Count, Options
from rims_rl.config.layers import read_mapping
from rims_rl.suites.plan import Plan, make_plan, shipped


class TransferOptions(Options):
    sources: Sequence[str]  # what is learned first
    targets: Sequence[str]  # what is learned then, and from scratch
    cores: Sequence[str] = ("rims", "lstm")
    seeds: Count = 3  # how many
    steps: Count = 1_000_000  # of each run
    carry: str = "encoder=finetune,core=finetune"
    episodes: Count = 100  # of the evaluation of each policy
    algo: str = "ppo"
    settings: dict[str, Any] = Field(default_factory=dict)  # hyperparameters, over those of the zoo
    env_options: dict[str, Any] = Field(default_factory=dict)  # of all environments, as a suite has them
    name: str = "transfer"  # of the suite


def plan_transfer(options: TransferOptions, logdir: Path, write: bool = True) -> Plan:
    """The plan of a suite. With ``write``, it is also in ``<logdir>/suites/<name>.yml``, for `rims-rl suite`."""
    name = options.name
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UserError(f"`name` must be letters, digits, dots, - and _, got {name!r}")
    if name in shipped():
        raise UserError(f"`name` {name} is a suite that comes with rims-rl; choose another name")
    data = {
        "title": f"Transfer from {', '.join(options.sources)} to {', '.join(options.targets)}",
        "envs": list(options.targets),
        "algos": {options.algo: {}},
        "cores": {core: {} for core in options.cores},
        "seeds": list(range(options.seeds)),
        "steps": options.steps,
        "overrides": options.settings,
        "evaluation": {"episodes": options.episodes},
        "transfer": {"sources": list(options.sources), "carry": options.carry},
        "report": "transfer",
    }
    if options.env_options:
        data["env_options"] = options.env_options
    file = logdir / "suites" / f"{name}.yml"
    plan = make_plan(name, data, "transfer", str(file))
    if file.exists() and read_mapping(file) != data:
        raise UserError(f"{file} is another experiment; choose another `name` than {name}, or remove that file")
    if write:
        with replacing(file) as temporary:
            temporary.write_text(yaml.safe_dump(data, sort_keys=False))
    return plan
