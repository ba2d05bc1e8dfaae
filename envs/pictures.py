"""Small pictures of many environments at once: what an agent sees that learns from pixels alone."""

from __future__ import annotations

import cv2
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.common.errors import UserError
from rims_rl.envs.make import make_envs
from rims_rl.envs.mujoco.mujoco_pictures import MujocoPictures, choose_renderer
from rims_rl.envs.mujoco.perturbed_joints import is_mujoco
from rims_rl.envs.names import Resolved


class Pictured:
    """Copies of an environment, and what each of them looks like.

    Args:
        env: which; it is played as an agent's is, so that Atari games skip frames.
        n_envs: how many copies, all in this process.
        seed: of the first one; the others follow.
        side: of the pictures, in pixels; 0: nobody looks at them, and none are drawn.
    """

    def __init__(self, env: Resolved, n_envs: int, seed: int, side: int) -> None:
        self.env, self.side = env, side
        by_mujoco = is_drawn_by_mujoco(env)
        if by_mujoco and side:
            choose_renderer(env.id)
        here = env._replace(vec_env=None)  # in this process, where they can be looked at
        self.envs: VecEnv = make_envs(here, n_envs, seed, threads=1, clip_rewards=False)
        self._mujoco: MujocoPictures | None = None
        if by_mujoco and side and all(map(is_mujoco, bodies := self.envs.get_attr("unwrapped"))):
            self._mujoco = MujocoPictures(bodies, env.id, side)

    def pictures(self) -> np.ndarray:
        """Of this moment, after a reset: `(n_envs, side, side, 3)` bytes."""
        if self._mujoco is not None:
            return self._mujoco()
        if not self.side:
            return np.zeros((self.envs.num_envs, 0, 0, 3), np.uint8)
        found = self.envs.get_images() if self.envs.render_mode == "rgb_array" else [None]
        images = [image for image in found if image is not None]
        if len(images) < self.envs.num_envs:
            raise UserError(f"{self.env.id} cannot be imitated from pictures: it has no render_mode rgb_array")
        return np.stack([_small(image, self.side) for image in images])

    def close(self) -> None:
        if self._mujoco is not None:
            self._mujoco.close()
        self.envs.close()


def is_drawn_by_mujoco(env: Resolved) -> bool:
    """Whether its class is one of Gymnasium's for MuJoCo, without making one."""
    from rims_rl.envs.one_env import is_mujoco_id

    return env.rom is None and is_mujoco_id(env.id)


def _small(image: np.ndarray, side: int) -> np.ndarray:
    """`(height, width, 3)` bytes of any size -> `(side, side, 3)`."""
    return image if image.shape[:2] == (side, side) else cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
