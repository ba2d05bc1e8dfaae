"""What an environment does wrong is said in its name."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from rims_rl.common.errors import EnvironmentFailed, UserError


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """What is raised inside, ``sys.exit`` too, is an :class:`EnvironmentFailed` that names the environment."""
    try:
        yield
    except (Exception, SystemExit) as error:
        _blame(name, error)


def _blame(name: str, error: BaseException) -> NoReturn:
    if isinstance(error, UserError):
        raise error
    if isinstance(error, gym.error.DependencyNotInstalled):  # Gymnasium's own sentence says what to install
        raise UserError(f"{name} needs a package that is not installed: {error}") from error
    if isinstance(error, EOFError | ConnectionError):
        raise EnvironmentFailed(f"{name}: the process of one of its copies ended, and says above why") from error
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    raise EnvironmentFailed(f"{name} raised {what} ({Path(place.filename).name}, line {place.lineno})") from error


class Guarded(VecEnvWrapper):
    """Environments whose errors are an :class:`EnvironmentFailed`, and so are numbers from them that are not finite.

    What it does at every step is written to take little time: no context manager, one sum instead of a look at each
    number.
    """

    def __init__(self, envs: VecEnv, name: str) -> None:
        super().__init__(envs)
        self._name, self._steps = name, 0
        self.largest_reward = 0.0  # so far, whatever its sign

    def reset(self) -> Any:
        with blaming(self._name):
            observations = self.venv.reset()
        self._check("an observation", observations)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        try:
            self.venv.step_async(actions)
        except (Exception, SystemExit) as error:
            _blame(self._name, error)

    def step_wait(self) -> Any:
        try:
            observations, rewards, dones, infos = self.venv.step_wait()
        except (Exception, SystemExit) as error:
            _blame(self._name, error)
        self._steps += 1
        self._check("a reward", rewards)
        self.largest_reward = max(self.largest_reward, rewards.max(), -rewards.min())
        self._check("an observation", observations)
        if dones.any():
            for index in np.flatnonzero(dones):
                self._check("a last observation", infos[index].get("terminal_observation"))
        return observations, rewards, dones, infos

    def _check(self, what: str, values: Any) -> None:
        if isinstance(values, dict):
            for key, array in values.items():
                if isinstance(array, np.ndarray) and array.dtype.kind == "f":  # else it may be any number
                    self._check(f"{what} of {key!r}", array)
            return
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or math.isfinite(values.sum()):
            return
        wrong = values[~np.isfinite(values)]
        if len(wrong):  # else only the sum was too large
            when = f"at its step {self._steps:,}" if self._steps else "after a reset"
            raise EnvironmentFailed(f"{self._name} gave {what} that is not finite, {wrong[0]}, {when}")
