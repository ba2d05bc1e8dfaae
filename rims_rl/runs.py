"""The folder of a training run, laid out as rl_zoo3's users know it.

::

    <logdir>/<algo>/<Env>_<n>/
        <Env>/config.yml args.yml       settings, plain YAML
        command.txt  run.json           the command; versions, commit, machine, result
        0.monitor.csv                   score, length and time of every finished episode
        evaluations.npz                 periodic evaluations, as Stable-Baselines3's EvalCallback writes them
        policy.safetensors policy.json  the last policy; the only files our commands read
        best/                           the policy with the best evaluation, likewise
        <Env>.zip                       the whole model for Stable-Baselines3 (a pickle)
        tensorboard/
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rims_rl.errors import UserError


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
        raise UserError(f"--logdir {logdir} cannot be written: {error.strerror}") from error


def write_yaml(path: Path, data: dict[str, Any]) -> None:
    """To a temporary name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(yaml.safe_dump(data, sort_keys=False))
    os.replace(temporary, path)
