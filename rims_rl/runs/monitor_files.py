"""The episodes of a training, from the files that Stable-Baselines3's Monitor writes, and our runs too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rims_rl.common.errors import UserError


@dataclass(frozen=True)
class Episodes:
    """Finished episodes in the order of their ends, each (N)."""

    scores: np.ndarray
    ends: np.ndarray  # steps of all environments; an episode counts at the sum of the lengths of all that have ended
    seconds: np.ndarray  # since the beginning of training
    env_id: str | None

    def __len__(self) -> int:
        return len(self.scores)


def monitor_files(path: Path) -> list[Path]:
    """The file itself, or those in a folder: one for all environments, or one for each."""
    return [path] if path.is_file() else sorted([*path.glob("*.monitor.csv"), *path.glob("monitor.csv")])


def read_episodes(paths: Sequence[Path]) -> Episodes:
    """Of one training."""
    headers, tables = zip(*map(_read, paths), strict=True)
    begun = min(header.get("t_start", 0.0) for header in headers)
    late = [header.get("t_start", 0.0) - begun for header in headers]
    rows = np.concatenate([table + np.array([0, 0, delay]) for table, delay in zip(tables, late, strict=True)])
    rows = rows[np.argsort(rows[:, 2], kind="stable")] if len(paths) > 1 else rows
    return Episodes(rows[:, 0], np.cumsum(rows[:, 1]), rows[:, 2], headers[0].get("env_id"))


def _read(path: Path) -> tuple[dict[str, float], np.ndarray]:
    """The first line, and score, length and seconds of each episode: (N, 3)."""
    try:
        lines = path.read_text().splitlines()
        header = json.loads("".join(lines[:1]).removeprefix("#") or "{}")
        rows = np.array([line.split(",")[:3] for line in lines[2:]], float).reshape(-1, 3)
        if not (np.isfinite(rows).all() and (rows[:, 1] > 0).all() and rows[:, 1].sum() < np.inf):
            raise ValueError("numbers that are not of episodes")
        header["t_start"] = float(header.get("t_start", 0.0))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged ({reason}); remove the lines that are not r,l,t") from error
    return header, rows
