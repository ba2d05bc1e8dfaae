"""What a MiniGrid agent sees: the same numbers and the same pixels as Minigrid gives, but faster."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import Wall, WorldObj
from minigrid.minigrid_env import MiniGridEnv

from rims_rl.envs.minigrid.new_objects import Star

CODES = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX))  # how many objects, colours and states there are
EMPTY = (OBJECT_TO_IDX["empty"], 0, 0)
OUTSIDE = Wall()


def symbolic_view(env: MiniGridEnv) -> np.ndarray:
    """``env.gen_obs()["image"]``: object, colour and state of each cell, (view, view, 3), zeros where nothing is seen.

    Minigrid copies the view into a new grid and turns that up to four times, cell by cell. Here each cell is looked up
    once.
    """
    view, grid = env.agent_view_size, env.grid
    x, y = env.agent_pos
    all_cells = [*grid.grid, OUTSIDE]
    cells = [all_cells[i] for i in seen_cells(view, int(x), int(y), int(env.agent_dir), grid.width, grid.height)]
    codes = [EMPTY if cell is None else cell.encode() for cell in cells]
    codes[agent_cell(view)] = env.carrying.encode() if env.carrying else EMPTY
    image = np.array(codes, np.uint8)
    if not env.see_through_walls:
        opaque = bytes([cell is not None and not cell.see_behind() for cell in cells])
        image[hidden_cells(view, opaque)] = 0
    return image.reshape(view, view, 3)


class Tiles:
    """Turns symbolic views into the pixels of Minigrid's RGBImgPartialObsWrapper, by looking up each cell's tile."""

    def __init__(self, tile_size: int = 8) -> None:
        self.tile_size = tile_size
        count = int(np.prod(CODES))
        self._tiles = np.zeros((2 * count, 3, tile_size, tile_size), np.uint8)  # second half: with the agent on top
        self._drawn = np.zeros(2 * count, bool)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """(batch, view, view, 3) -> (batch, 3, view * tile_size, view * tile_size)."""
        view, size = images.shape[1], self.tile_size
        codes = images.reshape(len(images), -1, 3)
        if (codes >= CODES).any():
            raise ValueError(f"MiniGrid's codes must be below {CODES}, got up to {tuple(codes.max((0, 1)))}")
        index = codes.astype(int) @ (CODES[1] * CODES[2], CODES[2], 1)
        index[:, agent_cell(view)] += len(self._tiles) // 2
        for row, cell in np.argwhere(~self._drawn[index]):
            self._draw(index[row, cell], codes[row, cell], cell == agent_cell(view))
        # (batch, x, y, channel, row, column) -> (batch, channel, y, row, x, column): a view's first axis goes across
        tiles = self._tiles[index].reshape(-1, view, view, 3, size, size)
        return tiles.transpose(0, 3, 2, 4, 1, 5).reshape(-1, 3, view * size, view * size)

    def _draw(self, index: int, code: np.ndarray, agent: bool) -> None:
        seen = code[0] != OBJECT_TO_IDX["unseen"]
        tile = Grid.render_tile(_decode(*code), 3 if agent else None, bool(seen), self.tile_size)
        self._tiles[index], self._drawn[index] = tile.transpose(2, 0, 1), True


def _decode(shape: int, colour: int, state: int) -> WorldObj | None:
    if IDX_TO_OBJECT[shape] == "star":
        return Star(IDX_TO_COLOR[colour])
    return WorldObj.decode(shape, colour, state)


def agent_cell(view: int) -> int:
    """In the middle of the view's last row."""
    return view // 2 * view + view - 1


@lru_cache(100_000)
def seen_cells(view: int, x: int, y: int, direction: int, width: int, height: int) -> list[int]:
    """Where in a grid's list the cells of a view are, column by column; -1 for what is outside."""
    ahead = DIR_TO_VEC[direction]
    right = np.array((-ahead[1], ahead[0]))
    cells = [(x, y) + (i - view // 2) * right + (view - 1 - j) * ahead for i in range(view) for j in range(view)]
    return [int(y * width + x) if 0 <= x < width and 0 <= y < height else -1 for x, y in cells]


@lru_cache(100_000)
def hidden_cells(view: int, opaque: bytes) -> np.ndarray:
    """Which cells cannot be seen when these are opaque. A room has few patterns, so this is computed once for each."""
    grid = Grid(view, view)
    for cell, blocks in enumerate(opaque):
        if blocks:
            grid.set(cell // view, cell % view, OUTSIDE)
    return ~grid.process_vis(agent_pos=(view // 2, view - 1)).ravel()
