"""Atari games for Stable-Baselines3, on ALE's own C++ vector environment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from rims_rl.envs.names import atari_games


class AtariVecEnv(VecEnv):
    """Many copies of one game, stepped by C++ threads and preprocessed as usual.

    Frames are grey, 84 x 84, the last 4 stacked; 4 frames per step with a maximum over the last two; up to 30 no-ops at
    the start of a game. A lost life ends an episode; the game goes on. Where a game waits for FIRE, the first action
    of a new life is FIRE, whatever the agent chose. ``infos[i]["episode"]`` holds the raw score and the length of a
    whole game when one ends, as Stable-Baselines3's Monitor has it.

    Args:
        rom: ALE's name of the game, such as ``"demon_attack"``.
        num_envs: how many copies.
        life_loss_ends_episode: if not, only the end of the game does.
        clip_rewards: to -1, 0 or 1.
        repeat_action_probability: sticky actions.
        max_frames: a game is truncated after so many frames.
        num_threads: of ALE; 0 for as many as there are cores.
        seed: of the first reset; environment i gets ``seed + i``.
    """

    def __init__(
        self,
        rom: str,
        num_envs: int,
        *,
        life_loss_ends_episode: bool = True,
        clip_rewards: bool = True,
        repeat_action_probability: float = 0.0,
        max_frames: int = 108_000,
        num_threads: int = 0,
        seed: int | None = None,
    ) -> None:
        if rom not in atari_games().values():  # games for two players end the whole process
            raise ValueError(f"rom must be ALE's name of a game for one player, such as 'demon_attack', got {rom!r}")
        self.rom, self.clip_rewards, self.render_mode = rom, clip_rewards, "rgb_array"
        self.settings = {
            "rom": rom,
            "life_loss_ends_episode": life_loss_ends_episode,
            "repeat_action_probability": repeat_action_probability,
            "max_frames": max_frames,
        }
        self._ale = AtariVectorEnv(
            rom,
            num_envs,
            num_threads=num_threads,
            repeat_action_probability=repeat_action_probability,
            max_num_frames_per_episode=max_frames,
            autoreset_mode=AutoresetMode.SAME_STEP,
            life_loss_info=life_loss_ends_episode,  # `episodic_life` would restart the whole game
            reward_clipping=False,  # clipped below, so that the raw score is known
        )
        super().__init__(num_envs, self._ale.single_observation_space, self._ale.single_action_space)
        meanings = [action.name for action in self._ale.ale.get_action_set()]
        self._fire = meanings.index("FIRE") if meanings[1:2] == ["FIRE"] and len(meanings) >= 3 else None
        self.seed(seed)

    def reset(self) -> VecEnvObs:
        """Start all games again."""
        seed = self._seeds[0]
        observations, info = self._ale.reset(seed=None if seed is None else np.array(self._seeds))
        self._reset_seeds()
        self._frames, self._lives = info["episode_frame_number"].copy(), info["lives"].copy()
        self._scores, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, int)
        self._new_life = np.zeros(self.num_envs, bool)
        self._started = time.time()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._observations = observations
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        actions = np.asarray(actions, np.int64).ravel()
        if self._fire is not None and self._new_life.any():
            actions = np.where(self._new_life, self._fire, actions)
        self._ale.send(actions)

    def step_wait(self) -> VecEnvStepReturn:
        observations, raw, terminated, truncated, info = self._ale.recv()
        self._observations = observations
        dones = terminated | truncated
        frames = info["episode_frame_number"]
        over = frames <= self._frames  # ALE has started a new game: only then is its final observation one
        self._new_life = (info["lives"] < self._lives) & ~over
        self._frames, self._lives = frames.copy(), info["lives"].copy()
        self._scores += raw
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(dones):
            infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            infos[i]["terminal_observation"] = (info["final_obs"] if over[i] else observations)[i].copy()
        for i in np.flatnonzero(over):
            seconds = round(time.time() - self._started, 6)
            infos[i]["episode"] = {"r": float(self._scores[i]), "l": int(self._lengths[i]), "t": seconds}
            self._scores[i] = self._lengths[i] = 0
        for env_info, lives in zip(infos, self._lives, strict=True):
            env_info["lives"] = int(lives)
        rewards = np.sign(raw) if self.clip_rewards else raw
        return observations, rewards.astype(np.float32), dones, infos

    def close(self) -> None:
        self._ale.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise ValueError(f"{attr_name!r} cannot be set: the games run in C++")

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        raise ValueError(f"{method_name!r} cannot be called: the games run in C++")

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Says yes to Monitor, whose work this class does."""
        from stable_baselines3.common.monitor import Monitor

        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[np.ndarray | None]:
        """The newest frame of each game, as the agent sees it."""
        return [np.repeat(stack[-1][..., None], 3, -1) for stack in self._observations]
