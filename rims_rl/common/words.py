"""Numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def count_of(number: int, word: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def decimals(score: float) -> int:
    """How many tell scores apart that are about as large."""
    return 2 if abs(score) < 10 else 1


def mean_in_words(mean: float, interval: Sequence[float], median: float | None = None) -> str:
    """``mean 0.84 (95 % interval 0.82 to 0.85), median 0.88``."""
    digits = decimals(mean)
    low, high = interval
    text = f"mean {mean:.{digits}f} (95 % interval {low:.{digits}f} to {high:.{digits}f})"
    return text if median is None else f"{text}, median {median:.{digits}f}"
