"""Many recall tasks, stepped together: for Stable-Baselines3, the same as each by itself, but faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from rims_rl.envs.recall.recall import QUESTION, ending


class RecallVecEnv(DummyVecEnv):
    """DummyVecEnv for ``Recall``, with every number the same.

    Each environment's own ``reset`` draws its episodes, so that its random numbers are what they would be. All that
    follows is done here, in arrays with one row per environment. The environments are brought up to date only when
    somebody looks at them: to show them, or by ``get_attr`` and ``env_method``.
    """

    def __init__(self, env_fns: list[Callable[[], gym.Env[Any, Any]]]) -> None:
        self._tasks: list[Any] = []  # until the first reset
        super().__init__(env_fns)
        self._began: float = self.get_attr("t_start")[0]  # Monitor's
        task: Any = self.envs[0].unwrapped
        self._table = task.table
        self._rows = np.arange(self.num_envs)
        self._codes = np.full((self.num_envs, task.delay[1] + 2), QUESTION)
        self._steps = np.zeros(self.num_envs, int)

    def reset(self) -> VecEnvObs:
        observations = super().reset()
        self._tasks = [env.unwrapped for env in self.envs]
        for row in range(self.num_envs):
            self._read(row)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        dones = self._codes[self._rows, self._steps] == QUESTION
        success = dones & (self.actions == self._codes[:, 0])
        self._steps += ~dones
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in self._rows]
        for row in np.flatnonzero(dones).tolist():
            seconds = round(time.time() - self._began, 6)
            episode = {"r": float(success[row]), "l": int(self._steps[row]) + 1, "t": seconds}
            infos[row] |= ending(bool(success[row]))
            infos[row] |= {"episode": episode, "terminal_observation": self._table[QUESTION].copy()}
            _, self.reset_infos[row] = self._tasks[row].reset()
            self._read(row)
        return self._table[self._codes[self._rows, self._steps]], success.astype(np.float32), dones, infos

    def get_images(self) -> Sequence[np.ndarray | None]:
        self._write()
        return super().get_images()

    def _get_target_envs(self, indices: VecEnvIndices) -> list[gym.Env[Any, Any]]:
        self._write()
        return super()._get_target_envs(indices)

    def _read(self, row: int) -> None:
        """Take over an environment that has just been reset. Shorter episodes leave old codes behind their end."""
        codes = self._tasks[row].codes
        self._codes[row, : len(codes)] = codes
        self._steps[row] = 0

    def _write(self) -> None:
        """Bring the environments up to date."""
        for row, task in enumerate(self._tasks):
            task.step_count = int(self._steps[row])
