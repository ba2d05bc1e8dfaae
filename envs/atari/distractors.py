"""Distractors over the frames of Atari games, for all games of a VecEnv at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from rims_rl.envs.atari.sprites import SIZE, STACK, Overlay


class Distractors(VecEnvWrapper):
    """Two moving sprites, two patches, noise and brighter light over what an agent sees; rewards stay as they are.

    A game keeps its distractors until it is over, also when a life is lost. They follow from the seed, the number of
    the environment and how many games it has begun since it was seeded, and not from what the agent does. On sb3, a
    game that ends unreported, in the no-op after a lost life, hands its distractors on to the next one.

    Args:
        venv: Atari games with stacks of 4 frames, channels first.
        which: ``"known"``, or ``"novel-sprites"``, ``"novel-patches"``, ``"novel-noise"``, ``"novel-brightness"``: the
            same with a novel set for one of the four.
        seed: of the games and the distractors.
    """

    def __init__(self, venv: VecEnv, which: str, seed: int | None = None) -> None:
        if venv.observation_space.shape != (STACK, SIZE, SIZE):
            raise ValueError(f"Distractors takes frames of shape (4, 84, 84), got {venv.observation_space.shape}")
        super().__init__(venv)
        self.overlay = Overlay(which, venv.num_envs)
        self._games = np.zeros(venv.num_envs, int)
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        self._distractor_seeds: Any = self.venv.seed(seed)
        self._games[:] = 0
        return self._distractor_seeds

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        for i in range(self.num_envs):
            self._begin(i)
        return self._draw(observations)

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        self.overlay.age += 1
        for i in np.flatnonzero(dones).tolist():
            infos[i]["terminal_observation"] = self.overlay.draw(infos[i]["terminal_observation"][None], [i])[0]
            if "episode" in infos[i]:  # the game is over, not only a life lost
                self._begin(i)
        return self._draw(observations), rewards, dones, infos

    def get_images(self) -> Sequence[np.ndarray | None]:
        """The newest frame of each game, as the agent sees it, four times as large."""
        large = self._drawn[:, -1].repeat(4, axis=1).repeat(4, axis=2)
        return list(large[..., None].repeat(3, axis=3))

    def _begin(self, i: int) -> None:
        self.overlay.begin(i, np.random.default_rng((self._distractor_seeds[i], self._games[i])))
        self._games[i] += 1

    def _draw(self, observations: VecEnvObs) -> VecEnvObs:
        assert isinstance(observations, np.ndarray)
        self._drawn = self.overlay.draw(observations)
        return self._drawn
