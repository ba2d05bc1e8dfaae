"""An environment that says which actions are possible is never given another; saying that all are changes nothing."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env

from rims_rl import runtime
from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.exporting.export import ExportOptions, export
from rims_rl.inspect.record import InspectOptions, inspect
from rims_rl.training.train import TrainOptions, train
from tests.helpers.verbs import evaluate_run, user_error

SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4}


class Locked(gym.Env):
    """Of each row of choices only two are possible, which change at each step; others are a mistake. Says whether the
    last one was the first of those that were possible."""

    observation_space = spaces.Box(0, 1, (8,))

    def __init__(self, rows=None, strict=True, all_allowed=False):
        self.action_space = spaces.Discrete(8) if rows is None else spaces.MultiDiscrete([4] * rows)
        self.sizes = [8] if rows is None else [4] * rows
        self.strict, self.all_allowed = strict, all_allowed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action):
        chosen = np.atleast_1d(action)
        possible = [mask[choice] for mask, choice in zip(self.masks, chosen, strict=True)]
        assert not self.strict or all(possible), "an action that was not possible"
        right = chosen[0] == np.flatnonzero(self.masks[0])[0]
        self.steps += 1
        return self._next(), float(right), self.steps == 8, False, {}

    def _next(self):
        self.masks = [np.isin(np.arange(size), self.np_random.choice(size, 2, False)) for size in self.sizes]
        return np.resize(self.masks[0].astype(np.float32), 8)


class Masked(Locked):
    def action_masks(self):
        masks = np.concatenate(self.masks)
        return np.ones_like(masks) if self.all_allowed else masks


class Stuck(Locked):
    def action_masks(self):
        return np.zeros(8, bool)


gym.register("Masked-v0", entry_point=Masked)


def weights_after(make, env, steps, **kwargs):
    """Of a model that has learned for a while."""
    envs = make_vec_env(env, 2, seed=0, env_kwargs=kwargs)
    model = make("MlpRimsPolicy", envs, n_steps=8, seed=0, policy_kwargs=SMALL)
    model.learn(steps)
    return torch.cat([weight.detach().flatten() for weight in model.policy.parameters()])


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("make", [RecurrentPPO, RecurrentA2C])
def test_masks_that_allow_everything_change_no_bit(make, rows):
    free = {"rows": rows, "strict": False}
    without = weights_after(make, Locked, 32, **free)
    assert torch.equal(weights_after(make, Masked, 32, all_allowed=True, **free), without)
    assert not torch.equal(weights_after(make, Masked, 32, **free), without)


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_no_verb_takes_an_action_that_is_not_possible(algo, rows, tmp_path):
    """The environment fails if one does."""
    settings = {**SMALL, "n_envs": 2, "n_steps": 8} | ({"batch_size": 16, "n_epochs": 2} if algo == "ppo" else {})
    how = {"n_timesteps": 64, "eval_freq": 32, "eval_episodes": 2, "logdir": tmp_path, "threads": 1}
    kwargs = {"rows": rows} if rows else None
    run = train(TrainOptions(env="Masked-v0", algo=algo, env_kwargs=kwargs, settings=settings, **how)).folder
    assert len(evaluate_run(run, 4, deterministic=False).scores) == 4
    assert len(evaluate_run("Masked-v0", 4, random=True, env_kwargs=kwargs, out=tmp_path / "random.json").scores) == 4
    assert inspect(InspectOptions(run=run, threads=1, deterministic=False)).recordings[0].steps == 8


@pytest.mark.parametrize("rows", [None, 2])
def test_an_exported_policy_is_told_what_is_possible(rows, tmp_path):
    settings = {**SMALL, "n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}
    how = {"n_timesteps": 16, "eval_freq": 0, "logdir": tmp_path, "threads": 1, "settings": settings}
    run = train(TrainOptions(env="Masked-v0", env_kwargs={"rows": rows} if rows else None, **how)).folder
    agent = runtime.load(export(ExportOptions(run=run, check_steps=20)).file, seed=0)
    env = Masked(rows)
    observation, _ = env.reset(seed=0)
    for step in range(200):
        action = agent.act(observation, env.steps == 0, deterministic=step % 2 == 0, action_masks=env.action_masks())
        observation, _, end, *_ = env.step(action)
        if end:
            observation, _ = env.reset()
    assert agent.act(observation, True) is not None  # all actions
    with pytest.raises(ValueError, match=r"action_masks must have shape \(1, 8\), one row for each environment, got"):
        agent.act(observation, True, action_masks=np.ones(3))


def test_an_environment_in_which_nothing_is_possible_is_one_sentence():
    with user_error("action_masks.* allows no action at all"):
        weights_after(RecurrentPPO, Stuck, 16)


def test_only_the_possible_is_learned():
    """Of the two possible actions the lower one: the mask alone gives half."""
    envs = make_vec_env(Masked, 8, seed=0)
    model = RecurrentPPO(
        "MlpRimsPolicy", envs, learning_rate=3e-3, n_steps=32, batch_size=128, n_epochs=4, seed=0,
        policy_kwargs={"core": "gru", "rim_size": 8},
    )  # fmt: skip
    model.learn(8192)
    scores = [episode["r"] for episode in model.ep_info_buffer]
    assert np.mean(scores[-50:]) > 6
