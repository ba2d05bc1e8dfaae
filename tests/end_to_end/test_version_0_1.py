"""A run that version 0.1 left behind can still be used in every way."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sb3_contrib import RecurrentPPO

from rims_rl import runtime
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.exporting.export import ExportOptions, export
from tests.helpers.verbs import evaluate_run, resume_run

OLD = Path(__file__).parents[1] / "helpers" / "run_of_version_0_1"


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(OLD, tmp_path / "CartPole-v1_1")


def test_it_is_evaluated_exported_and_resumed(run):
    evaluate_run(run, 2)
    export(ExportOptions(run=run, format="safetensors", check_steps=4))
    assert load_policy(run)[1].steps == 256
    resume_run(run, 320)
    assert load_policy(run)[1].steps == 320
    assert (run / "checkpoints/320.pt").exists()


def test_what_it_exported_plays(run):
    policy, _ = load_policy(run / "CartPole-v1.safetensors")
    agent = runtime.load(run / "CartPole-v1.onnx")
    observation = np.array([0.1, -0.2, 0.3, 0.4], np.float32)
    assert agent.act(observation, True).shape == () and policy.num_rims == 3
    assert agent.step(observation, True)["active"].sum() == 2


def test_its_pickle_loads_in_sb3_contrib(run):
    model = RecurrentPPO.load(run / "CartPole-v1.zip")
    assert type(model.policy).__name__ == "MlpRimsPolicy" and model.num_timesteps == 256
