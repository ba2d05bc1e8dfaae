"""Noise in the joints of a body that MuJoCo moves (the paper's appendix E.1)."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from rims_rl.common.errors import UserError
from rims_rl.envs.names import Resolved

PATH = "rims_rl.envs.mujoco.perturbed_joints.PerturbedJoints"


class PerturbedJoints(gym.Wrapper[Any, Any, Any, Any]):
    """Before each step, every joint that a motor moves is turned by a random angle:

        q_j <- clip(q_j + strength * e_j, lowest_j, highest_j),   e_j ~ N(0, 1)

    The noise is in the body, and not in what is seen of it: observations, pictures and rewards are of the state that
    the body really has. Velocities, and where the body as a whole is, stay as they are.

    Args:
        env: a MuJoCo environment of Gymnasium.
        strength: standard deviation, in radians (of joints that slide, in metres).
    """

    def __init__(self, env: gym.Env[Any, Any], strength: float) -> None:
        super().__init__(env)
        if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 <= strength < math.inf:
            raise UserError(f"the strength of noise in joints must be 0 or a positive number, got {strength!r}")
        self.strength = float(strength)
        self._joints, self._low, self._high = _driven_joints(env)
        self._random = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng((seed, 1))  # not the numbers that the environment draws
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        body: Any = self.unwrapped
        angles = body.data.qpos.copy()
        noise = self.strength * self._random.standard_normal(len(self._joints))
        angles[self._joints] = np.clip(angles[self._joints] + noise, self._low, self._high)
        body.set_state(angles, body.data.qvel.copy())
        return self.env.step(action)


def is_mujoco(env: gym.Env[Any, Any]) -> bool:
    """Whether it is one of Gymnasium's MuJoCo environments, or made like them."""
    return all(hasattr(env.unwrapped, name) for name in ("model", "data", "set_state", "do_simulation"))


def perturbed(env: Resolved, strength: float) -> Resolved:
    """``env`` with noise in its joints; as it is where ``strength`` is 0."""
    if not strength:
        return env
    return env._replace(env_wrapper=[*(env.env_wrapper or ()), {PATH: {"strength": strength}}])


def _driven_joints(env: gym.Env[Any, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the angles of joints with motors are in the state, and their limits."""
    if not is_mujoco(env):
        raise UserError(f"{env.unwrapped} has no joints to perturb: it is no MuJoCo environment of Gymnasium")
    import mujoco  # type: ignore[import-untyped]

    model = env.unwrapped.model  # type: ignore[attr-defined]
    moved = model.actuator_trnid[model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT), 0]
    simple = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))  # of one number each
    joints = np.array([joint for joint in np.unique(moved) if model.jnt_type[joint] in simple], int)
    if not len(joints):
        raise UserError(f"{env.unwrapped} has no joint with a motor, so that none can be perturbed")
    limited = model.jnt_limited[joints].astype(bool)
    low, high = model.jnt_range[joints].T
    return model.jnt_qposadr[joints], np.where(limited, low, -np.inf), np.where(limited, high, np.inf)
