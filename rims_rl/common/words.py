"""Numbers in sentences."""

from __future__ import annotations


def count_of(number: int, word: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
