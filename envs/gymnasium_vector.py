"""Vector environments with Gymnasium's interface, such as ``gymnasium.make_vec`` and EnvPool make, for
Stable-Baselines3."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn


class GymnasiumVecEnv(VecEnv):
    """One vector environment, of any way to begin the next episode.

    ``AutoresetMode.SAME_STEP`` is Stable-Baselines3's own way, and ``DISABLED`` is brought to it by ``reset_mask``.
    With ``NEXT_STEP``, which EnvPool has too, the step after the end of an episode only starts the next one, whatever
    is done: it counts as an episode of one step without a reward, so that no memory goes over into the real one. It is
    not reported in ``infos[i]["episode"]``, which hold score and length as Stable-Baselines3's Monitor has them.
    """

    def __init__(self, envs: Any, seed: int | None = None) -> None:
        self._envs = envs
        self._mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.render_mode = getattr(envs, "render_mode", None)
        if hasattr(envs, "num_envs"):
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        else:  # EnvPool's have a length, the spaces of one environment, and the seed that they were made with
            super().__init__(len(envs), envs.observation_space, envs.action_space)
        self.seed(seed)

    def reset(self) -> VecEnvObs:
        seed = self._seeds[0]
        takes_seed = seed is not None and hasattr(self._envs, "num_envs")
        observations, _ = self._envs.reset(seed=seed) if takes_seed else self._envs.reset()
        self._reset_seeds()
        self._scores, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, int)
        self._starting = np.zeros(self.num_envs, bool)  # whether the next step only starts an episode
        self._began = time.time()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return _copy(observations)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, terminated, truncated, info = self._envs.step(self._actions)
        rewards, started = np.asarray(rewards, np.float32), self._starting
        dones = (terminated | truncated) & ~started
        self._scores += np.where(started, 0, rewards)
        self._lengths += ~started
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        last = _copy(observations) if dones.any() else None
        for i in np.flatnonzero(dones):
            final = info["final_obs"][i] if self._mode is AutoresetMode.SAME_STEP else _row(last, i)
            seconds = round(time.time() - self._began, 6)
            infos[i] = {
                "terminal_observation": final,
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                "episode": {"r": float(self._scores[i]), "l": int(self._lengths[i]), "t": seconds},
            }
            self._scores[i] = self._lengths[i] = 0
        if self._mode is AutoresetMode.DISABLED and dones.any():
            observations, _ = self._envs.reset(options={"reset_mask": dones})
        if self._mode is AutoresetMode.NEXT_STEP:
            self._starting, dones = dones, dones | started
        return _copy(observations), rewards, dones, infos

    def close(self) -> None:
        self._envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        frames = self._envs.render() if self.render_mode == "rgb_array" else None
        return [None] * self.num_envs if frames is None else list(frames)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Of the whole, as many times: it has no parts to ask."""
        source = self if attr_name == "render_mode" else self._envs
        return [getattr(source, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(f"{attr_name} of single copies of a vector environment cannot be set")

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """What a method of the whole gives, row by row."""
        rows = getattr(self._envs, method_name)(*args, **kwargs)
        return [rows[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Only by a Monitor, since episodes are reported as it does."""
        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))


def _row(observations: Any, i: np.signedinteger) -> Any:
    if isinstance(observations, dict):
        return {key: value[i] for key, value in observations.items()}
    return observations[i]


def _copy(observations: Any) -> Any:
    """Environments may write the next ones into the same array."""
    if isinstance(observations, dict):
        return {key: np.array(value) for key, value in observations.items()}
    return np.array(observations)
