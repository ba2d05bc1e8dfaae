"""Many pick-up tasks, stepped together: for Stable-Baselines3, the same as each by itself, but faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from rims_rl.envs.minigrid.missions import encode_mission
from rims_rl.envs.minigrid.view import CODES, Tiles, agent_cell, hidden_cells, seen_cells

# What is in a cell is one number here, its kind: object * number of colours + colour. The state is 0 without doors.
KINDS = np.array([(shape, colour, 0) for shape in range(CODES[0]) for colour in range(CODES[1])], np.uint8)
FORWARD, PICK_UP, DROP = 2, 3, 4
TURN = np.array((-1, 1, 0, 0, 0))  # by action


def _kind(shape: str, colour: str) -> int:
    return OBJECT_TO_IDX[shape] * CODES[1] + COLOR_TO_IDX[colour]


UNSEEN, EMPTY, WALL = 0, OBJECT_TO_IDX["empty"] * CODES[1], _kind("wall", "grey")
HIDDEN, OUTSIDE = -2, -1  # cells at the end of each row, for what is not seen and for what is not in the room


class PickupVecEnv(DummyVecEnv):
    """DummyVecEnv for ``Pickup`` in ``MinigridObservation``, with every number the same.

    Each environment's own ``reset`` makes its rooms, so that its random numbers are what they would be. All that
    follows is done here, in arrays with one row per environment. The environments are brought up to date only when
    somebody looks at them: to show them, or by ``get_attr`` and ``env_method``.
    """

    def __init__(self, env_fns: list[Callable[[], gym.Env[Any, Any]]]) -> None:
        self._rooms: list[Any] = []  # until the first reset
        super().__init__(env_fns)
        self._tiles = Tiles() if self.get_attr("image")[0] == "rgb" else None
        self._began: float = self.get_attr("t_start")[0]  # Monitor's
        room: Any = self.envs[0].unwrapped
        self._view, self._size, self._strict = room.agent_view_size, room.room_size, room.strict
        self._seen = _seen_by_place(self._size, self._view)
        self._rows = np.arange(self.num_envs)
        self._cells = np.zeros((self.num_envs, self._size**2 + 2), int)
        self._cells[:, HIDDEN], self._cells[:, OUTSIDE] = UNSEEN, WALL
        numbers = np.zeros((5, self.num_envs), int)
        self._positions, self._directions, self._carried, self._targets, self._steps = numbers
        self._missions = self.buf_obs["mission"]

    def reset(self) -> VecEnvObs:
        observations = super().reset()
        self._rooms = [env.unwrapped for env in self.envs]
        for row in range(self.num_envs):
            self._read(row)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        picked = self._act(self.actions)
        self._steps += 1
        success = picked == self._targets
        terminated = picked != EMPTY if self._strict else success
        truncated = (self._steps >= self._max_steps) & ~terminated
        dones = terminated | truncated
        rewards = np.where(success, 1 - 0.9 * (self._steps / self._max_steps), 0.0)
        if self.render_mode == "human":
            self.env_method("render")
        images = self._images(self._rows)
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": late} for late in truncated.tolist()]
        ended = np.flatnonzero(dones)
        for row in ended.tolist():
            outcome = "success" if success[row] else "wrong pick" if terminated[row] else "time-out"
            seconds = round(time.time() - self._began, 6)
            infos[row] |= {
                "outcome": outcome,
                "is_success": outcome == "success",
                "episode": {"r": round(float(rewards[row]), 6), "l": int(self._steps[row]), "t": seconds},
                "terminal_observation": {"image": images[row].copy(), "mission": self._missions[row].copy()},
            }
            _, self.reset_infos[row] = self._rooms[row].reset()
            self._read(row)
        if len(ended):
            images[ended] = self._images(ended)
        return {"image": images, "mission": self._missions.copy()}, rewards.astype(np.float32), dones, infos

    def get_images(self) -> Sequence[np.ndarray | None]:
        self._write()
        return super().get_images()

    def _get_target_envs(self, indices: VecEnvIndices) -> list[gym.Env[Any, Any]]:
        self._write()
        return super()._get_target_envs(indices)

    def _act(self, actions: np.ndarray) -> np.ndarray:
        """Turn, move, pick up and drop. Returns the kinds of what was picked up, EMPTY where nothing was."""
        ahead = self._positions + np.array((1, self._size, -1, -self._size))[self._directions]
        there = self._cells[self._rows, ahead]
        self._directions = (self._directions + TURN[actions]) % 4
        self._positions = np.where((actions == FORWARD) & (there == EMPTY), ahead, self._positions)
        picked = (actions == PICK_UP) & (self._carried == EMPTY) & (there != EMPTY) & (there != WALL)
        for row in np.flatnonzero(picked | ((actions == DROP) & (there == EMPTY))).tolist():
            self._swap(row, ahead[row])
        return np.where(picked, there, EMPTY)

    def _images(self, rows: np.ndarray) -> np.ndarray:
        """What the agents of these rows see."""
        kinds = self._cells[rows[:, None], self._seen[self._directions[rows], self._positions[rows]]]
        kinds[:, agent_cell(self._view)] = self._carried[rows]
        images = KINDS[kinds].reshape(-1, self._view, self._view, 3)
        return images if self._tiles is None else self._tiles(images)

    def _swap(self, row: int, cell: int) -> None:
        """Take what lies in the cell, or put down what is carried."""
        self._cells[row, cell], self._carried[row] = self._carried[row], self._cells[row, cell]
        room = self._rooms[row]
        cells = room.grid.grid
        cells[cell], room.carrying = room.carrying, cells[cell]

    def _read(self, row: int) -> None:
        """Take over an environment that has just been reset."""
        room = self._rooms[row]
        self._cells[row, :-2] = [EMPTY if cell is None else _kind(cell.type, cell.color) for cell in room.grid.grid]
        x, y = room.agent_pos
        self._positions[row], self._directions[row] = y * self._size + x, room.agent_dir
        self._steps[row], self._carried[row] = 0, EMPTY
        self._targets[row] = _kind(room.instrs.desc.type, room.instrs.desc.color)
        self._missions[row] = encode_mission(room.mission, self._missions.shape[1])
        self._max_steps = room.max_steps  # not known before a reset

    def _write(self) -> None:
        """Bring the environments up to date, but for the objects, which :meth:`_swap` has moved."""
        for row, room in enumerate(self._rooms):
            y, x = divmod(int(self._positions[row]), self._size)
            room.agent_pos, room.agent_dir = (x, y), int(self._directions[row])
            room.step_count = int(self._steps[row])


def _seen_by_place(size: int, view: int) -> np.ndarray:
    """The cells that an agent sees, by its direction and its own cell: (4, size * size, view * view). Only walls hide
    what is behind them, so this is the same in all episodes."""
    table = np.full((4, size * size, view * view), HIDDEN)
    for direction, y, x in product(range(4), range(1, size - 1), range(1, size - 1)):
        cells = np.array(seen_cells(view, x, y, direction, size, size))
        rows, columns = np.divmod(cells, size)
        walls = (cells == OUTSIDE) | (rows % (size - 1) == 0) | (columns % (size - 1) == 0)
        table[direction, y * size + x] = np.where(hidden_cells(view, bytes(walls.tolist())), HIDDEN, cells)
    return table
