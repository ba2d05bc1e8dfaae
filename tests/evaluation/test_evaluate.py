"""Evaluation on both backends of Atari games, and of random actions."""

import json
from pathlib import Path

import pytest
import yaml

from rims_rl.common.errors import UserError
from rims_rl.evaluation.evaluate import evaluate
from rims_rl.runs.folder import Arguments
from rims_rl.training.train import train

OPTIONS = {"backend": "sb3", "game_mode": 4, "difficulty": 1}
TINY = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=64", "n_envs=2", "n_steps=32", "batch_size=32"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A policy trained on sb3 in a mode and a difficulty that are not the game's own."""
    return train(Arguments(env="Breakout", eval_freq=0, **OPTIONS), None, TINY, tmp_path_factory.mktemp("logs"))


def scores(tmp_path, *arguments, **options):
    """What evaluation writes."""
    evaluate(*arguments, tmp_path / "result.json", **options)
    return json.loads((tmp_path / "result.json").read_text())


def test_a_run_is_evaluated_as_it_was_trained_unless_told_otherwise(run, tmp_path):
    assert OPTIONS.items() <= yaml.safe_load((run / "Breakout/args.yml").read_text()).items()
    assert json.loads((run / "policy.json").read_text())["env_options"] == {
        **OPTIONS,
        "observation": None,
        "distractors": None,
    }
    result = scores(tmp_path, run, 2, None, 0, 2, 1)
    assert OPTIONS.items() <= result["env"].items() and len(result["scores"]) == 2
    other = scores(tmp_path, run, 2, None, 0, 2, 1, difficulty=0)
    assert (other["env"]["game_mode"], other["env"]["difficulty"]) == (4, 0)
    with pytest.raises(UserError, match="needs --backend sb3"):
        scores(tmp_path, run, 2, None, 0, 2, 1, backend="ale")


@pytest.mark.parametrize("backend", ["ale", "sb3"])
def test_random_actions_are_evaluated_without_a_run(backend, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate(Path("Breakout"), 3, None, 0, 2, 1, None, random=True, backend=backend)
    result = json.loads((tmp_path / "Breakout_random.json").read_text())
    assert result["run"] == "random" and result["env"]["backend"] == backend
    assert len(result["scores"]) == 3 and min(result["lengths"]) > 50
    assert "random actions" in capsys.readouterr().out
    again = scores(tmp_path, Path("Breakout"), 3, None, 0, 2, 1, random=True, backend=backend)
    assert again["scores"] == result["scores"] and again["lengths"] == result["lengths"]


def test_random_actions_are_neither_deterministic_nor_sampled_from_a_policy(tmp_path):
    with pytest.raises(UserError, match="leave out --deterministic"):
        scores(tmp_path, Path("CartPole-v1"), 1, True, 0, 1, 1, random=True)
    assert scores(tmp_path, Path("Pendulum-v1"), 2, None, 0, 2, 1, random=True)["mean"] < -100
