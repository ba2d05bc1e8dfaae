"""An environment in a file of a user's own goes through every command, and what it was made with is never dropped."""

import json
import shutil
import sys

import gymnasium as gym
import numpy as np
import pytest

from rims_rl import runtime
from rims_rl.agents.saved.policy_files import load_policy, read_description
from rims_rl.envs.make import make_envs
from rims_rl.runs.environment import resolve_saved
from tests.helpers.code_blocks import page_followed
from tests.helpers.verbs import evaluate_run, resume_run, user_error

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=16", "batch_size=32", "n_epochs=1"]


def less(line):
    settings = " ".join(f"--set {each}" for each in SMALL)
    small = line.replace("-n 20000", f"-n 64 {settings}").replace("-n 30000", "-n 96")
    return small if "export" in line or "--resume" in line else f"{small} --threads 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a reader of the page has when its commands have run, each for less time."""
    folder = tmp_path_factory.mktemp("own")
    with page_followed("docs/how-to/your_own_environment.md", folder, "my_env.py", less):
        yield folder
    gym.registry.pop("My/WhichSide-v0")


@pytest.fixture
def run(folder):
    return folder / "logs/ppo/My-WhichSide-v0_1"


def test_all_commands_of_the_page_run(folder, run):
    assert (folder / "inside.html").exists() and list(run.glob("videos/*.mp4"))
    assert json.loads((run / "run.json").read_text())["steps"] == 96
    agent = runtime.load(run / "My-WhichSide-v0.onnx")
    assert agent.act(np.zeros((36, 36, 3), np.uint8), True) in (0, 1)


def test_evaluation_drops_no_setting(run):
    """Episodes are as long as `delay` says, and the wrapper scales rewards."""
    description = read_description(run)
    assert description.env_options.given() == {
        "env_kwargs": {"delay": 5}, "env_wrapper": [{"my_env.Scaled": {"factor": 10}}]
    }  # fmt: skip
    result = evaluate_run(run, 20)
    assert set(result.lengths) == {6} and set(result.scores) <= {0.0, 10.0} and 10.0 in result.scores
    changed = evaluate_run(run, 2, env_kwargs={"delay": 1})
    assert set(changed.lengths) == {2}
    rows = np.loadtxt(run / "0.monitor.csv", delimiter=",", skiprows=2, usecols=(0, 1))
    assert set(rows[:, 1]) == {6}
    assert max(rows[:, 0]) == 10


def test_a_resumed_run_is_played_the_same_way(folder, run):
    copy = shutil.copytree(run, folder / "copy")
    resume_run(copy, 128)
    assert read_description(copy).steps == 128
    assert set(evaluate_run(copy, 4).lengths) == {6}


def test_a_process_for_each_copy_knows_the_module(run):
    _, description = load_policy(run)
    envs = make_envs(resolve_saved(description, vec_env="subproc"), 2, 0)
    assert envs.reset().shape == (2, 36, 36, 3)
    lengths = [envs.step(np.zeros(2, int))[2].any() for _ in range(6)]
    assert lengths == [False] * 5 + [True]
    envs.close()


def test_somebody_elses_run_imports_nothing_without_trust(folder, run, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "somebody else"))
    named = "would import the environment my_env:My/WhichSide-v0 and the wrapper my_env.Scaled"
    monkeypatch.delitem(sys.modules, "my_env")
    monkeypatch.delitem(gym.registry, "My/WhichSide-v0")
    with user_error(f"{named}, and was not trained by you; give --trust"):
        evaluate_run(run, 2)
    with user_error(f"{named}, and was not trained by you, or was changed since; give --trust"):
        resume_run(run, 128)
    assert "my_env" not in sys.modules
    assert evaluate_run(run, 2, trust=True).lengths == [6, 6]


def test_a_run_that_was_changed_is_not_ones_own_any_more(folder, run):
    changed = shutil.copytree(run, folder / "changed")
    args = changed / "My-WhichSide-v0" / "args.yml"
    args.write_text(args.read_text().replace("my_env.Scaled", "my_env.WhichSide"))
    with user_error("the wrapper my_env.WhichSide, and was not trained by you, or was changed since"):
        resume_run(changed, 128)
