"""What a report says is what the run's own files say."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from rims_rl.common.errors import UserError
from rims_rl.evaluation.options import ReportOptions
from rims_rl.evaluation.run_report import report
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import evaluate_run, train_run

TINY = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=1024", "n_envs=2", "n_steps=64", "batch_size=128"]


def test_curve_evaluations_and_baselines_are_gathered_and_drawn(tmp_path):
    run = train_run(Arguments(env="CartPole-v1", eval_freq=256, eval_episodes=3), TINY, tmp_path)
    evaluate_run(run, 4)
    evaluate_run(Path("CartPole-v1"), 4, out=tmp_path / "random.json", random=True)
    report(ReportOptions(run=run, baselines=[tmp_path / "random.json"], out=tmp_path / "out.json"))
    result = json.loads((tmp_path / "out.json").read_text())

    scores, lengths = np.loadtxt(run / "0.monitor.csv", delimiter=",", skiprows=2, usecols=(0, 1), unpack=True)
    curve = result["curve"]
    assert sum(point["episodes"] for point in curve) == len(scores)
    assert np.average([p["mean"] for p in curve], weights=[p["episodes"] for p in curve]) == pytest.approx(
        scores.mean()
    )
    assert curve[-1]["steps"] == lengths.sum()
    assert [evaluation["steps"] for evaluation in result["evaluations"]] == [256, 512, 768, 1024]
    final = json.loads((run / "evaluation.json").read_text())
    assert result["final"]["mean"] == final["mean"] and result["baselines"][0]["run"] == "random"
    assert result["config"]["n_timesteps"] == 1024 and result["run"]["seed"] == 0 and result["paper"] is None
    assert imread(tmp_path / "out.png").std() > 0.05  # something is drawn


def test_what_is_not_a_run_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="is it the folder of a run"):
        report(ReportOptions(run=tmp_path))
