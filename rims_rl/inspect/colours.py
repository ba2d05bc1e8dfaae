"""One colour for each RIM, the same in pictures and videos."""

from __future__ import annotations

import colorsys


def rim_colours(count: int) -> list[tuple[float, float, float]]:
    """Around the colour wheel, as red, green and blue between 0 and 1."""
    return [colorsys.hls_to_rgb((k / count + 0.62) % 1, 0.58, 0.6) for k in range(count)]
