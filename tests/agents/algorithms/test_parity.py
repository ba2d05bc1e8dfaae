"""Our algorithms against the originals: from the same weights, environments and seed, the same weights come out."""

import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.agents import RecurrentA2C, RecurrentPPO
from tests.helpers.agents import Anything, box, image

ENVS = {
    "CartPole": lambda: make_vec_env("CartPole-v1", 4),
    "continuous": lambda: DummyVecEnv([lambda: Anything(box(5), box(2))] * 3),
}


def train(model, weights, steps):
    """Load ``weights``, learn from a fixed seed, and return what became of them."""
    model.policy.load_state_dict(weights)
    model.set_random_seed(7)
    model.learn(steps)
    return {name: weight.detach().clone() for name, weight in model.policy.state_dict().items()}


def assert_same(ours, theirs, before):
    moved = max((theirs[name] - before[name]).abs().max() for name in theirs)
    assert moved > 1e-3, "the comparison means nothing if nothing was learned"
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("options", [{}, {"use_rms_prop": False, "normalize_advantage": True, "ent_coef": 0.01}])
def test_a2c_without_memory_equals_stable_baselines3(env, options):
    ours = RecurrentA2C("MlpRimsPolicy", ENVS[env](), policy_kwargs={"core": "none"}, seed=0, **options)
    theirs = stable_baselines3.A2C("MlpPolicy", ENVS[env](), seed=0, device="cpu", **options)
    before = {name: weight.clone() for name, weight in theirs.policy.state_dict().items()}
    steps = 10 * theirs.n_steps * theirs.n_envs
    assert_same(train(ours, before, steps), train(theirs, before, steps), before)


def test_a2c_without_memory_equals_stable_baselines3_on_images():
    env = lambda: DummyVecEnv([lambda: Anything(image(3, 36, 36), spaces.Discrete(3))] * 2)  # noqa: E731
    ours = RecurrentA2C("CnnRimsPolicy", env(), policy_kwargs={"core": "none"}, seed=0)
    theirs = stable_baselines3.A2C("CnnPolicy", env(), seed=0)
    before = {name: weight.clone() for name, weight in theirs.policy.state_dict().items()}
    assert_same(train(ours, before, 40), train(theirs, before, 40), before)


@pytest.mark.parametrize("env", ENVS)
def test_ppo_with_an_lstm_equals_sb3_contrib(env, monkeypatch):
    """One minibatch of the whole rollout, and sb3-contrib's random cut (which truncates gradients) pinned to 0."""
    monkeypatch.setattr(np.random, "randint", lambda *args, **kwargs: 0)
    options = {"n_steps": 32, "batch_size": None, "n_epochs": 3, "learning_rate": 1e-3, "clip_range_vf": 0.2, "seed": 0}
    ours = RecurrentPPO(
        "MlpRimsPolicy", ENVS[env](), policy_kwargs={"core": "lstm", "critic": "separate", "rim_size": 3}, **options
    )
    theirs = sb3_contrib.RecurrentPPO("MlpLstmPolicy", ENVS[env](), policy_kwargs={"lstm_hidden_size": 18}, **options)
    before = {name: weight.clone() for name, weight in theirs.policy.state_dict().items()}
    rename = lambda name: name.replace("lstm_actor.", "lstm_actor.lstm.").replace("lstm_critic.", "lstm_critic.lstm.")  # noqa: E731
    steps = 4 * theirs.n_steps * theirs.n_envs
    after = train(ours, {rename(name): weight for name, weight in before.items()}, steps)
    assert_same({name: after[rename(name)] for name in before}, train(theirs, before, steps), before)


def test_our_ppo_with_our_policy_equals_stock_ppo_with_our_policy(monkeypatch):
    """The same RIMs policy, padded and cut by sb3-contrib or in whole sequences by us."""
    monkeypatch.setattr(np.random, "randint", lambda *args, **kwargs: 0)
    options = {"n_steps": 32, "batch_size": None, "n_epochs": 2, "learning_rate": 1e-3, "seed": 0}
    kwargs = {"num_rims": 4, "num_active": 2, "rim_size": 4}
    ours = RecurrentPPO("MlpRimsPolicy", ENVS["CartPole"](), policy_kwargs=kwargs, **options)
    theirs = sb3_contrib.RecurrentPPO(type(ours.policy), ENVS["CartPole"](), policy_kwargs=kwargs, **options)
    before = {name: weight.clone() for name, weight in theirs.policy.state_dict().items()}
    assert_same(train(ours, before, 256), train(theirs, before, 256), before)
