"""What an environment does wrong is said in its name."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from rims_rl.common.errors import EnvironmentFailed, UserError


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """What is raised inside, ``sys.exit`` too, is an :class:`EnvironmentFailed` that names the environment."""
    try:
        yield
    except UserError:
        raise
    except gym.error.DependencyNotInstalled as error:  # Gymnasium's own sentence says what to install
        raise UserError(f"{name} needs a package that is not installed: {error}") from error
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        raise EnvironmentFailed(f"{name} raised {what} ({Path(place.filename).name}, line {place.lineno})") from error


class Guarded(VecEnvWrapper):
    """Environments whose errors are an :class:`EnvironmentFailed`, and so are numbers from them that are not finite."""

    def __init__(self, envs: VecEnv, name: str) -> None:
        super().__init__(envs)
        self._name, self._steps = name, 0

    def reset(self) -> Any:
        with blaming(self._name):
            observations = self.venv.reset()
        self._check("an observation", observations, "after a reset")
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        with blaming(self._name):
            self.venv.step_async(actions)

    def step_wait(self) -> Any:
        with blaming(self._name):
            observations, rewards, dones, infos = self.venv.step_wait()
        self._steps += 1
        when = f"at its step {self._steps:,}"
        self._check("a reward", rewards, when)
        self._check("an observation", observations, when)
        for index in np.flatnonzero(dones):
            self._check("a last observation", infos[index].get("terminal_observation"), when)
        return observations, rewards, dones, infos

    def _check(self, what: str, values: Any, when: str) -> None:
        for key, array in values.items() if isinstance(values, dict) else (("", values),):
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
                number = array[~np.isfinite(array)][0]
                of = f" of {key!r}" if key else ""
                raise EnvironmentFailed(f"{self._name} gave {what}{of} that is not finite, {number}, {when}")
