"""Mistakes are said before slow work, in the words of whoever made them."""

import os
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rims_rl.common.words import count_of
from rims_rl.config import zoo
from rims_rl.core import GRU, LSTM, RIM
from rims_rl.envs import make, watch
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.evaluation.evaluate import EvaluateOptions, evaluate
from rims_rl.exporting.export import ExportOptions, export
from rims_rl.inspect.enjoy import EnjoyOptions, enjoy
from rims_rl.inspect.record import InspectOptions, inspect
from rims_rl.training.train import TrainOptions, build, resolve_arguments, train
from tests.helpers.untrained_runs import save_untrained
from tests.helpers.verbs import resume_run, user_error

SMALL = {"rim_size": 4, "n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}


class HugeRewards(gym.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1e38 * (1 + action), False, False, {}


gym.register("HugeRewards-v0", entry_point=HugeRewards, max_episode_steps=5)


def how(tmp_path, **more):
    return {"eval_freq": 0, "logdir": tmp_path, "threads": 1, "settings": SMALL, **more}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return save_untrained(tmp_path_factory.mktemp("run"), "CartPole-v1")


@pytest.fixture
def no_game(monkeypatch):
    """Making an environment is a failure."""

    def fail(*_, **__):
        raise AssertionError("an environment was made")

    monkeypatch.setattr(watch, "make_envs", fail)
    monkeypatch.setattr("rims_rl.evaluation.evaluate.make_envs", fail)


@pytest.mark.usefixtures("no_game")
def test_what_cannot_be_written_or_dropped_is_said_before_a_game_is_made(cartpole, tmp_path):
    (tmp_path / "file").write_text("")
    with user_error("a video's name must end in .mp4 or .gif, got .*x.avi"):
        enjoy(EnjoyOptions(run=cartpole, out=tmp_path / "x.avi"))
    with user_error("x.html cannot be written: Not a directory"):
        inspect(InspectOptions(run=cartpole, html=tmp_path / "file" / "x.html"))
    for verb, options in ((enjoy, EnjoyOptions), (inspect, InspectOptions), (evaluate, EvaluateOptions)):
        with user_error("there is no RIM 17"):
            verb(options(run=cartpole, drop=(17,)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_is_not_there_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with user_error("there is no file or folder nothere; give the folder of a run"):
        evaluate(EvaluateOptions(run="nothere"))
    with user_error("DemonAttack is an environment, and not the folder of a run; --random plays it"):
        evaluate(EvaluateOptions(run="DemonAttack"))
    with user_error("there is no folder nothere; give the folder of a run, such as logs/ppo/"):
        enjoy(EnjoyOptions(run="nothere"))


def test_an_export_that_could_not_be_written_is_said_before_the_policy_is_read(tmp_path):
    (tmp_path / "file").write_text("")
    with user_error("x.onnx cannot be written: Not a directory"):
        export(ExportOptions(run=tmp_path / "nothere", out=tmp_path / "file" / "x.onnx"))
    with user_error("--out must end with .onnx, got .*x.txt"):
        export(ExportOptions(run=tmp_path / "nothere", out=tmp_path / "x.txt"))


def test_resuming_to_fewer_steps_says_how_many_there_were(tmp_path):
    run = train(TrainOptions(env="CartPole-v1", n_timesteps=32, **how(tmp_path))).folder
    with user_error("has finished its 32 steps; to train it longer, give -n with more than 32, got 8"):
        resume_run(run, 8)


def test_more_steps_than_were_asked_for_are_announced(tmp_path, caplog):
    caplog.set_level("INFO")
    train(TrainOptions(env="CartPole-v1", n_timesteps=20, **how(tmp_path)))
    assert "it will be 32 steps instead of 20: whole rollouts of n_steps * n_envs = 8 * 2 = 16" in caplog.text
    caplog.clear()
    train(TrainOptions(env="CartPole-v1", n_timesteps=32, **how(tmp_path)))
    assert "instead of" not in caplog.text


def test_without_evaluations_there_are_no_environments_for_them(tmp_path):
    options = TrainOptions(env="CartPole-v1", **how(tmp_path))
    env = resolve_arguments(options)
    config = zoo.load(env, "ppo", layers=[("", SMALL)]).config
    assert build(options.arguments(), config, env)[1] is None


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_huge_rewards_are_not_answered_with_a_smaller_learning_rate(tmp_path):
    with user_error("training diverged.*rewards are as large as 2e.38: let the environment give smaller ones"):
        train(TrainOptions(env="HugeRewards-v0", n_timesteps=320, **how(tmp_path)))


def test_a_level_of_babyai_that_throws_rooms_away_does_it_in_silence(capfd):
    envs = make_envs(resolve("BabyAI-PutNextS7N4-v0"), 8, 0)
    for seed in range(5):
        envs.seed(100 * seed)
        envs.reset()
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


@pytest.mark.parametrize(
    "make_core", [LSTM, GRU, lambda i, h: RIM(i, h, 2, 1), lambda i, h: RIM(i, h, 2, 1, batch_first=True)]
)
def test_one_sequence_needs_no_batch(make_core):
    core, x, starts = make_core(3, 8), torch.randn(5, 3), torch.tensor([1.0, 0, 0, 1, 0])
    batch = 0 if getattr(core, "batch_first", False) else 1
    output, (h, c) = core(x, None, starts)
    expected, (hs, cs) = core(x.unsqueeze(batch), None, starts.unsqueeze(batch))
    assert torch.equal(output, expected.squeeze(batch)) and output.shape == (5, 8)
    assert torch.equal(h, hs[:, 0]) and torch.equal(c, cs[:, 0])
    assert core(x, (h, c))[0].shape == (5, 8)


def test_one_is_not_many():
    assert (count_of(1, "seed"), count_of(3, "seed")) == ("1 seed", "3 seeds")


@pytest.mark.skipif(sys.platform != "linux" or "DISPLAY" in os.environ, reason="is about machines without a screen")
def test_sdl_is_quiet_without_a_screen():
    assert os.environ["SDL_VIDEODRIVER"] == "dummy" and make is not None
