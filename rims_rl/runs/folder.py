"""The folder of a training run, laid out as rl_zoo3's users know it.

::

    <logdir>/<algo>/<Env>_<n>/
        <Env>/config.yml args.yml       settings, plain YAML
        command.txt  run.json           the command; versions, commit, machine, result
        0.monitor.csv                   score, length and time of every finished episode
        evaluations.npz                 periodic evaluations, as Stable-Baselines3's EvalCallback writes them
        policy.safetensors policy.json  the policy of the last checkpoint
        best/                           the policy with the best evaluation, likewise
        policies/<steps>/               policies on the way, likewise, with keep_policies_every
        checkpoints/<steps>.pt          what resuming goes on from; the last two
        <Env>.zip  vecnormalize.pkl     the finished model for Stable-Baselines3: pickles, which our commands never read
        ppo_lstm/                       the finished and the best policy for rl_zoo3's enjoy, likewise
        log.txt                         the traceback, if the environment failed
        tensorboard/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]
from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from rims_rl.agents.saved.description import named_code
from rims_rl.common.env_options import EnvOptions
from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.common.options import Seed
from rims_rl.common.own_code import is_signed, sign
from rims_rl.runs.records import RunResult, read_record, write_record

LIBRARIES = ("torch.nn.", "torch.optim.", "stable_baselines3.", "rims_rl.")  # classes of these are nobody's own


class Arguments(EnvOptions):
    """What ``args.yml`` holds: what a run was asked for, besides hyperparameters."""

    env: str
    algo: str = "ppo"
    seed: Seed = 0
    device: str = "auto"
    threads: int = 1
    eval_freq: int = 250_000
    eval_episodes: int = 10
    checkpoint_freq: int = 100_000
    exact_resume: bool = False
    init_from: str | Path | None = None
    carry: str | None = None  # what to take over from there
    columns: list[str | Path] = Field(default_factory=list)  # runs that are the frozen columns of a progressive network
    keep_policies_every: int = 0


class _ArgumentsFile(Arguments):
    """The same, as it is written."""

    version: Literal[1] = 1  # of what the file holds; version 0.1 wrote none
    signature: str | None = None  # of whoever trained it, if it names code of their own


def claim(logdir: Path, algo: str, name: str) -> Path:
    """Make ``<logdir>/<algo>/<name>_<n>`` with the next free n. Two that claim together get two folders."""
    parent = logdir / algo
    try:
        parent.mkdir(parents=True, exist_ok=True)
        numbers = [
            int(match[1])
            for path in parent.iterdir()
            if (match := re.fullmatch(re.escape(name) + r"_(\d+)", path.name))
        ]
        number = max(numbers, default=0) + 1
        while True:
            folder = parent / f"{name}_{number}"
            try:
                folder.mkdir()  # fails if somebody else has just made it
                return folder
            except FileExistsError:
                number += 1
    except OSError as error:
        raise UserError(f"`logdir` {logdir} cannot be written: {error.strerror}") from error


def write_settings(run: Path, name: str, arguments: Arguments, config: dict[str, Any]) -> None:
    """``<Env>/args.yml`` and ``<Env>/config.yml``."""
    signature = sign(_what_is_signed(arguments, config)) if _named_code(arguments, config) else None
    asked = _ArgumentsFile(**arguments.model_dump(), signature=signature).model_dump(mode="json")
    asked = {"env": asked.pop("env"), **asked}
    for file, data in {"args.yml": asked, "config.yml": config}.items():
        with replacing(run / name / file) as temporary:
            temporary.write_text(yaml.safe_dump(data, sort_keys=False))


def check_own(run: Path, arguments: Arguments, config: dict[str, Any], trust: bool) -> None:
    """A UserError if going on with a run would import code that its ``args.yml`` or ``config.yml`` name, and it is
    neither the user's own nor to be trusted."""
    code = _named_code(arguments, config)
    if not code or trust:
        return
    signature = yaml.safe_load(_args_file(run).read_text()).get("signature")
    if not is_signed(_what_is_signed(arguments, config), signature):
        raise UserError(
            f"{run} would import {' and '.join(code)}, and was not trained by you, or was changed since; give `trust` "
            "if you trust whoever made it"
        )


def _named_code(arguments: Arguments, config: dict[str, Any]) -> list[str]:
    given = config.get("policy_kwargs")
    paths = [v for k, v in given.items() if str(k).endswith(("_class", "_fn"))] if isinstance(given, dict) else []
    others = [f"policy_kwargs {path}" for path in paths if not str(path).startswith(LIBRARIES)]
    return named_code(arguments.env, arguments, str(config.get("core"))) + others


def _what_is_signed(arguments: Arguments, config: dict[str, Any]) -> dict[str, Any]:
    """All that such code is called with."""
    options = {key: config.get(key) for key in ("core", "core_kwargs", "policy_kwargs")}
    return {"env": arguments.env, "env_options": arguments.given(), **options}


def _args_file(run: Path) -> Path:
    paths = list(run.glob("*/args.yml"))
    if len(paths) != 1:
        raise UserError(f"{run} is not the folder of a run; give one such as logs/ppo/DemonAttack_1")
    return paths[0]


def read_arguments(run: Path) -> tuple[Arguments, Path]:
    """What is in a run's ``args.yml``, and the path of the ``config.yml`` beside it."""
    path = _args_file(run)
    try:
        asked = _ArgumentsFile.model_validate(yaml.safe_load(path.read_text()))
        return Arguments(**asked.model_dump(exclude={"version", "signature"})), path.with_name("config.yml")
    except (OSError, ValueError, RecursionError, yaml.YAMLError, ValidationError) as error:
        reason = "; ".join(str(error).splitlines())
        raise UserError(f"{path} cannot be used ({reason}), so that the run cannot be resumed") from error


def write_result(run: Path, result: RunResult) -> None:
    """``run.json``."""
    write_record(run / "run.json", result)


def read_result(run: Path) -> RunResult | None:
    """What is in ``run.json``; None if a run was killed before it was written, or if it is damaged: a run that goes
    on writes it again."""
    try:
        return read_record(run / "run.json", RunResult, "")
    except UserError:
        return None


def is_finished(run: Path) -> bool:
    """Whether it came to the end that it was meant to have."""
    result = read_result(run)
    return result is not None and result.finished


@contextmanager
def lock(run: Path) -> Iterator[None]:
    """Only one process at a time writes into a run. The lock of a process that is killed opens by itself."""
    try:
        (run / "checkpoints").mkdir(exist_ok=True)
        held = FileLock(run / "checkpoints" / ".lock").acquire(timeout=0)
    except Timeout:
        raise UserError(f"{run} is being trained by another process; wait for it, or stop it") from None
    except OSError as error:
        raise UserError(f"{run} cannot be written: {error.strerror}") from error
    with held:
        yield
