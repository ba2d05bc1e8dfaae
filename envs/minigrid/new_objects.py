"""A colour and a shape that MiniGrid does not have. Importing this module adds them to its tables.

``COLOR_NAMES``, from which MiniGrid's own environments draw, stays as it is: their layouts do not change.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, COLORS, IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX
from minigrid.core.world_object import Ball, Box, Key, WorldObj
from minigrid.utils.rendering import fill_coords, point_in_triangle

COLORS["cyan"] = np.array([0, 255, 255])
COLOR_TO_IDX["cyan"], IDX_TO_COLOR[6] = 6, "cyan"
OBJECT_TO_IDX["star"], IDX_TO_OBJECT[11] = 11, "star"


class Star(WorldObj):
    """Something to pick up, with six points."""

    def __init__(self, color: str = "blue") -> None:
        super().__init__("star", color)

    def can_pickup(self) -> bool:
        return True

    def render(self, img: np.ndarray) -> None:  # type: ignore[override]  # as Minigrid's own do
        for corners in (((0.5, 0.1), (0.15, 0.7), (0.85, 0.7)), ((0.5, 0.9), (0.15, 0.3), (0.85, 0.3))):
            fill_coords(img, point_in_triangle(*corners), COLORS[self.color])


SHAPES: dict[str, Callable[[str], WorldObj]] = {
    "key": Key,
    "ball": Ball,
    "box": Box,
    "star": Star,
}  # what can be picked up
