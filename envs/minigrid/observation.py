"""MiniGrid and BabyAI for Stable-Baselines3: observations that it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.minigrid_env import MiniGridEnv

from rims_rl.envs.minigrid.missions import encode_mission, mission_length, mission_words
from rims_rl.envs.minigrid.view import CODES, Tiles, symbolic_view

OBSERVATIONS = ("symbolic", "rgb")
roomgrid_level.print = lambda *_: None  # type: ignore[attr-defined]  # else BabyAI tells of each room that it throws away


class MinigridObservation(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """A Dict of arrays, each of which becomes an element that RIMs attend to.

    - ``"image"``, symbolic: Minigrid's own code of each cell, ``(view, view, 3)``. The bounds of the space are the
      number of objects, colours and states, so that Stable-Baselines3 does not take it for a picture and divide it by
      255, and our encoder knows how many planes it makes.
    - ``"image"``, rgb: the pixels of Minigrid's RGBImgPartialObsWrapper, channels first.
    - ``"mission"``: numbers of words, see :mod:`rims_rl.envs.minigrid.missions`.
    - ``"direction"``, if asked for: where the agent looks in the grid, 0 to 3.
    - ``"goal"``, if asked for: how far the goal is away in x and y, in widths and heights of the grid.

    At the end of an episode ``info["is_success"]`` says whether there was a reward, and an episode that ended by itself
    in its last step is not also truncated.
    """

    def __init__(
        self, env: gym.Env[Any, Any], image: str = "symbolic", direction: bool = False, goal: bool = False
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, image=image, direction=direction, goal=goal)
        gym.Wrapper.__init__(self, env)
        grid = env.unwrapped
        if not isinstance(grid, MiniGridEnv):
            raise ValueError(f"MinigridObservation takes MiniGrid and BabyAI environments, got {env}")
        if image not in OBSERVATIONS:
            raise ValueError(f"image must be 'symbolic' or 'rgb', got {image!r}")
        self.image, self._grid, self._direction, self._goal = image, grid, direction, goal
        self._tiles = Tiles() if image == "rgb" else None
        self._length = mission_length(grid)
        self._words = mission_words(grid)
        if type(grid).gen_obs is MiniGridEnv.gen_obs:  # a subclass may see otherwise
            grid.gen_obs = self._gen_obs  # type: ignore[method-assign]  # the same, but faster
        wrappers = _wrappers(env)
        self._observes = any(isinstance(wrapper, gym.ObservationWrapper) for wrapper in wrappers)
        view = grid.agent_view_size
        parts: dict[str, spaces.Space[Any]] = {"image": _codes((view, view, 3), np.array(CODES) - 1)}
        if self._tiles is not None:
            side = view * self._tiles.tile_size
            parts["image"] = spaces.Box(0, 255, (3, side, side), np.uint8)
        parts["mission"] = _codes((self._length,), len(self._words))
        if direction:
            parts["direction"] = spaces.Discrete(4)
        if goal:
            parts["goal"] = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(parts)

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        # BabyAI's levels that start with something in the agent's hands observe before they put it there
        if not self._observes:
            observation = self._grid.gen_obs()
        self._mission = encode_mission(observation["mission"], self._length, self._words)
        if self._goal:
            self._goal_at = _find_goal(self._grid)
        return self._with_arrays(observation), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info.setdefault("is_success", bool(terminated and float(reward) > 0))
        return self._with_arrays(observation), reward, terminated, truncated and not terminated, info

    def _gen_obs(self) -> dict[str, Any]:
        grid = self._grid
        return {"image": symbolic_view(grid), "direction": grid.agent_dir, "mission": grid.mission}

    def _with_arrays(self, observation: dict[str, Any]) -> dict[str, Any]:
        image = observation["image"]
        arrays = {"image": image if self._tiles is None else self._tiles(image[None])[0], "mission": self._mission}
        if self._direction:
            arrays["direction"] = observation["direction"]
        if self._goal:
            grid = self._grid
            arrays["goal"] = ((self._goal_at - grid.agent_pos) / (grid.width, grid.height)).astype(np.float32)
        return arrays


def wrapper_arguments(env_id: str, image: str) -> dict[str, Any]:
    """Of MinigridObservation. In MultiRoom the agent also observes where the goal is, as in the paper's appendix, and
    its own direction, without which that would be of little use."""
    goal = str(gym.spec(env_id.rpartition(":")[2]).entry_point).endswith(":MultiRoomEnv")
    return {"image": image, "direction": goal, "goal": goal}


def _codes(shape: tuple[int, ...], largest: Any) -> spaces.Box:
    """Bytes that stand for something, from 0 to ``largest``."""
    return spaces.Box(np.zeros(shape, np.uint8), np.broadcast_to(np.uint8(largest), shape), dtype=np.uint8)


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _find_goal(grid: MiniGridEnv) -> np.ndarray:
    cells = [index for index, cell in enumerate(grid.grid.grid) if cell is not None and cell.type == "goal"]
    if not cells:
        raise ValueError(f"{grid.spec.id if grid.spec else grid} has no goal whose position could be observed")
    return np.array((cells[0] % grid.width, cells[0] // grid.width))
