"""Noise in the joints of a body: in its state, and in nothing else."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from rims_rl.common.errors import UserError
from rims_rl.envs.make import make_envs
from rims_rl.envs.mujoco.perturbed_joints import PerturbedJoints, perturbed
from rims_rl.envs.names import resolve

LIMITS = np.array([[-0.52, 1.05], [-0.785, 0.785], [-0.4, 0.785], [-1.0, 0.7], [-1.2, 0.87], [-0.5, 0.5]])


def test_each_step_begins_from_joints_turned_by_noise_within_their_limits():
    noisy, plain = PerturbedJoints(gym.make("HalfCheetah-v5"), strength=0.3), gym.make("HalfCheetah-v5")
    noisy.reset(seed=3)
    plain.reset(seed=3)
    random, actions = np.random.default_rng((3, 1)), np.random.default_rng(0)
    for _ in range(20):
        action = actions.uniform(-1, 1, 6).astype(np.float32)
        body = plain.unwrapped
        angles = body.data.qpos.copy()
        for joint in range(6):  # the last six of nine: three before them move the whole body
            turned = angles[3 + joint] + 0.3 * random.standard_normal()
            angles[3 + joint] = min(max(turned, LIMITS[joint, 0]), LIMITS[joint, 1])
        body.set_state(angles, body.data.qvel.copy())
        expected, reward, *_ = plain.step(action)
        observation, ours, *_ = noisy.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert ours == reward


def test_what_is_observed_is_what_the_body_has():
    env = PerturbedJoints(gym.make("HalfCheetah-v5"), strength=0.1)
    env.reset(seed=0)
    observation, *_ = env.step(np.zeros(6, np.float32))
    np.testing.assert_array_equal(observation[:8], env.unwrapped.data.qpos[1:])


def test_noise_follows_from_the_seed_and_not_from_that_of_other_episodes():
    def run(strength, seed):
        envs = make_envs(perturbed(resolve("HalfCheetah-v5"), strength), 2, seed)
        envs.reset()
        steps = [envs.step(np.zeros((2, 6), np.float32))[0] for _ in range(3)]
        return np.array(steps)

    np.testing.assert_array_equal(run(0.1, 5), run(0.1, 5))
    assert not np.allclose(run(0.1, 5), run(0.1, 6)) and not np.allclose(run(0.1, 5), run(0.0, 5))
    assert perturbed(resolve("HalfCheetah-v5"), 0.0).env_wrapper is None


@pytest.mark.parametrize("strength", [-0.1, float("inf"), "much", True])
def test_a_strength_that_is_none_is_said(strength):
    with pytest.raises(UserError, match="must be 0 or a positive number, got"):
        PerturbedJoints(gym.make("HalfCheetah-v5"), strength)


def test_only_bodies_have_joints():
    with pytest.raises(UserError, match="has no joints to perturb"):
        PerturbedJoints(gym.make("CartPole-v1"), 0.1)


def test_mujoco_warns_nobody_of_the_words_in_its_models_and_still_of_the_rest(tmp_path):
    script = (
        "import mujoco; from rims_rl.envs.make import make_envs; from rims_rl.envs.names import resolve\n"
        "envs = make_envs(resolve('HalfCheetah-v5'), 2, 0); envs.reset(); body = envs.get_attr('unwrapped')[0]\n"
        "body.data.qvel[:] = float('nan'); mujoco.mj_step(body.model, body.data)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "deprecated" not in ran.stdout + ran.stderr and "unstable" in ran.stderr
    assert list(tmp_path.iterdir()) == []
