"""What to say of a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], otherwise: str, count: int = 1, alike: float = 0.6) -> str:
    """``did you mean x?``, with up to ``count`` names that are spelled almost like ``name``, whether in capitals or
    not; ``otherwise`` if there is none. ``alike``: 0 is anything, 1 the same."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=alike)
    return f"did you mean {' or '.join(by_lower[match] for match in close)}?" if close else otherwise
