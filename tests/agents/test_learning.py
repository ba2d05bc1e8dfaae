"""Learning a task that needs memory, with both algorithms."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from rims_rl.agents import RecurrentA2C, RecurrentPPO
from tests.agents.tasks import Cue

LENGTH = 8
SMALL = {"num_rims": 4, "num_active": 2, "rim_size": 12, "net_arch": []}


def success(algorithm, core, steps, **options):
    torch.manual_seed(0)
    env = make_vec_env(lambda: Cue(LENGTH), 16, seed=0)
    model = algorithm("MlpRimsPolicy", env, seed=0, gamma=1.0, policy_kwargs={**SMALL, "core": core}, **options)
    model.learn(steps)
    rewards, _ = evaluate_policy(model, env, n_eval_episodes=200, deterministic=True, return_episode_rewards=True)
    return np.mean(rewards)


PPO = {"n_steps": 64, "batch_size": 256, "n_epochs": 4, "learning_rate": 3e-3}
A2C = {"n_steps": 16, "learning_rate": 3e-3}


@pytest.mark.parametrize("core", ["rims", "lstm", "gru"])
@pytest.mark.parametrize(("algorithm", "options"), [(RecurrentPPO, PPO), (RecurrentA2C, A2C)], ids=["ppo", "a2c"])
def test_cores_with_memory_remember_the_cue(algorithm, options, core):
    assert success(algorithm, core, 40_000, **options) >= 0.95


@pytest.mark.parametrize(("algorithm", "options"), [(RecurrentPPO, PPO), (RecurrentA2C, A2C)], ids=["ppo", "a2c"])
def test_without_memory_it_stays_at_chance(algorithm, options):
    assert 0.35 < success(algorithm, "none", 40_000, **options) < 0.65
