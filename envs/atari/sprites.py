"""What is drawn over the frames of Atari games, with known and novel sets that have nothing in common."""

from __future__ import annotations

from typing import Any

import numpy as np

SIZE = 84  # of a frame
STACK = 4
KINDS = ("sprites", "patches", "noise", "brightness")
DISTRACTORS = ("known", *(f"novel-{kind}" for kind in KINDS))  # all kinds known, or one of them novel

_y, _x = np.mgrid[-3.5:4, -3.5:4]
SPRITES = {  # (8, 8)
    "known": {"disc": _x**2 + _y**2 <= 16, "square": np.ones((8, 8), bool), "plus": np.minimum(abs(_x), abs(_y)) < 1},
    "novel": {
        "ring": abs(_x**2 + _y**2 - 11) <= 5,
        "cross": abs(abs(_x) - abs(_y)) < 1,
        "triangle": abs(_x) <= (_y + 4) / 2,
    },
}
NUM_SPRITES, SPRITE_LEVEL = 2, 224
SPEEDS = (-2, -1, 1, 2)  # pixels per step, down and to the right; at an edge a sprite comes in on the other side

_row, _column = np.indices((10, 10))
PATCHES = {  # (10, 10)
    "known": {"solid": np.ones((10, 10), bool), "stripes": _row % 4 < 2},
    "novel": {"checks": (_row // 2 + _column // 2) % 2 == 0, "diagonals": (_row + _column) % 4 < 2},
}
# Patches lie in cells of 12 x 12 pixels: known ones on the black squares of a chessboard, novel ones on the white, so
# that both hide as much of any game.
_cells = [(row, column) for row in range(7) for column in range(7)]
CELLS = {"known": [c for c in _cells if sum(c) % 2 == 0], "novel": [c for c in _cells if sum(c) % 2 == 1]}
NUM_PATCHES, PATCH_LEVEL = 2, 144

# Noise is another one of so many pictures at each step. Known: single pixels, on even rows and columns, so that no two
# touch. Novel: dashes of four pixels. Both have as many pixels.
NUM_NOISES, NOISE_PIXELS, DASH, NOISE_LEVEL = 64, 36, 4, 184

BRIGHTNESS = {"known": (0, 12, 24), "novel": (48, 60, 72)}  # added to every pixel


class Overlay:
    """Distractors for ``num_envs`` games: each has its own, drawn when the game begins, as a function of its age.

    Args:
        which: one of DISTRACTORS.
        num_envs: how many games.
    """

    def __init__(self, which: str, num_envs: int) -> None:
        if which not in DISTRACTORS:
            raise ValueError(f"which must be one of {', '.join(DISTRACTORS)}, got {which!r}")
        self.sets = {kind: "novel" if which == f"novel-{kind}" else "known" for kind in KINDS}
        self._shapes = np.stack(list(SPRITES[self.sets["sprites"]].values()))
        self._patterns = list(PATCHES[self.sets["patches"]].values())
        self._noises = _noises(self.sets["noise"])
        self._noise_order = np.random.default_rng(0).integers(NUM_NOISES, size=2**16)
        self.age = np.zeros(num_envs, int)
        self._shape = np.zeros((num_envs, NUM_SPRITES), int)
        self._start, self._speed = np.zeros((2, num_envs, NUM_SPRITES, 2), int)
        self._outside = np.full((num_envs, 1, SIZE, SIZE), 255, np.uint8)  # of the patches
        self._patches = np.zeros((num_envs, 1, SIZE, SIZE), np.uint8)
        self._noise_from = np.zeros(num_envs, int)
        # the same number in every pixel: numpy is many times faster with whole frames than with one number
        self._light = np.zeros((num_envs, 1, SIZE, SIZE), np.uint8)

    def begin(self, i: int, generator: np.random.Generator) -> None:
        """Game ``i`` begins, with new distractors."""
        self.age[i] = 0
        self._shape[i] = generator.integers(len(self._shapes), size=NUM_SPRITES)
        self._start[i] = generator.integers(SIZE, size=(NUM_SPRITES, 2))
        self._speed[i] = generator.choice(SPEEDS, (NUM_SPRITES, 2))
        self._outside[i], self._patches[i] = 255, 0
        cells = CELLS[self.sets["patches"]]
        for cell in generator.choice(len(cells), NUM_PATCHES, replace=False):
            pattern = self._patterns[generator.integers(len(self._patterns))]
            row, column = (12 * at + 1 for at in cells[cell])
            self._outside[i, 0, row : row + 10, column : column + 10][pattern] = 0
            self._patches[i, 0, row : row + 10, column : column + 10][pattern] = PATCH_LEVEL
        self._noise_from[i] = generator.integers(len(self._noise_order))
        self._light[i] = generator.choice(BRIGHTNESS[self.sets["brightness"]])

    def draw(self, stacks: np.ndarray, envs: Any = slice(None)) -> np.ndarray:
        """(envs, 4, 84, 84) bytes of the games ``envs``, the newest frame last -> a copy with distractors.

        All four frames are drawn on, each as it was at its time, also those from before the game that are still blank.
        """
        ages = self.age[envs, None] + np.arange(1 - STACK, 1)  # (envs, 4)
        drawn = stacks & self._outside[envs]
        drawn |= self._patches[envs]
        noise = self._noise_order[(self._noise_from[envs, None] + ages) % len(self._noise_order)]
        np.maximum(drawn, self._noises[noise], out=drawn)
        env, frame = np.ogrid[: len(stacks), :STACK]
        env, frame, pixels = env[..., None, None], frame[..., None, None], np.arange(8)
        for sprite in range(NUM_SPRITES):
            start, speed = self._start[envs, None, sprite], self._speed[envs, None, sprite]
            corner = start + ages[..., None] * speed  # (envs, 4, 2)
            rows = (corner[..., 0, None, None] + pixels[:, None]) % SIZE
            columns = (corner[..., 1, None, None] + pixels) % SIZE
            shape = self._shapes[self._shape[envs, sprite]][:, None]  # (envs, 1, 8, 8)
            drawn[env, frame, rows, columns] = np.where(shape, SPRITE_LEVEL, drawn[env, frame, rows, columns])
        light = self._light[envs]
        np.minimum(drawn, ~light, out=drawn)  # 255 - light, so that the sum stays below 256
        drawn += light
        return drawn


def _noises(which: str) -> np.ndarray:
    """(NUM_NOISES, 84, 84), the same in every process."""
    generator, length = np.random.default_rng(1), 1 if which == "known" else DASH
    noises = np.zeros((NUM_NOISES, SIZE, SIZE), np.uint8)
    places = [(row, column) for row in range(0, SIZE, 2) for column in range(0, SIZE, 2 * length)]
    for noise in noises:
        for place in generator.choice(len(places), NOISE_PIXELS // length, replace=False):
            row, column = places[place]
            noise[row, column : column + length] = NOISE_LEVEL
    return noises
