"""Evaluation on both backends of Atari games, and of random actions."""

import json
from pathlib import Path

import pytest
import yaml

from rims_rl.cli.evaluation_tables import print_evaluation
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import evaluate_run, train_run, user_error

OPTIONS = {"backend": "sb3", "game_mode": 4, "difficulty": 1}
TINY = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=64", "n_envs=2", "n_steps=32", "batch_size=32"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A policy trained on sb3 in a mode and a difficulty that are not the game's own."""
    return train_run(Arguments(env="Breakout", eval_freq=0, **OPTIONS), TINY, tmp_path_factory.mktemp("logs"))


def scores(tmp_path, run, episodes, **options):
    """What evaluation writes."""
    result = evaluate_run(run, episodes, out=tmp_path / "result.json", **options)
    written = json.loads(result.file.read_text())
    assert result.model_dump() == written
    return written


def test_a_run_is_evaluated_as_it_was_trained_unless_told_otherwise(run, tmp_path):
    assert OPTIONS.items() <= yaml.safe_load((run / "Breakout/args.yml").read_text()).items()
    assert json.loads((run / "policy.json").read_text())["env_options"] == OPTIONS
    result = scores(tmp_path, run, 2)
    assert OPTIONS.items() <= result["env"].items() and len(result["scores"]) == 2
    other = scores(tmp_path, run, 2, difficulty=0)
    assert (other["env"]["game_mode"], other["env"]["difficulty"]) == (4, 0)
    with user_error("needs --backend sb3"):
        scores(tmp_path, run, 2, backend="ale")


@pytest.mark.parametrize("backend", ["ale", "sb3"])
def test_random_actions_are_evaluated_without_a_run(backend, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    print_evaluation(evaluate_run(Path("Breakout"), 3, random=True, backend=backend))
    result = json.loads((tmp_path / "Breakout_random.json").read_text())
    assert result["run"] == "random" and result["env"]["backend"] == backend
    assert len(result["scores"]) == 3 and min(result["lengths"]) > 50
    assert "random actions" in capsys.readouterr().out
    again = scores(tmp_path, Path("Breakout"), 3, random=True, backend=backend)
    assert again["scores"] == result["scores"] and again["lengths"] == result["lengths"]


def test_random_actions_are_neither_deterministic_nor_sampled_from_a_policy(tmp_path):
    with user_error("leave out --deterministic"):
        scores(tmp_path, Path("CartPole-v1"), 1, deterministic=True, random=True)
    assert scores(tmp_path, Path("Pendulum-v1"), 2, random=True)["mean"] < -100
