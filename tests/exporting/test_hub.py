"""Sharing: what the folder holds, that nothing is sent unasked, and what is pulled, with a stand-in of the hub."""

import json
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import yaml

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.exporting.hub import ShareOptions, share
from rims_rl.jobs.engines.local import COMMAND
from rims_rl.runs.folder import Arguments
from tests.helpers.hub_stand_in import hub
from tests.helpers.verbs import evaluate_run, train_run, user_error

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=64", "n_envs=2", "n_steps=16", "batch_size=32"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = train_run(Arguments(env="CartPole-v1", eval_freq=0), SMALL, tmp_path_factory.mktemp("runs"))
    evaluate_run(run, 3)
    return run


SHARE = """
import sys
from rims_rl.exporting.hub import ShareOptions, share
run, push = sys.argv[1:]
print(share(ShareOptions(run=run, out="shared", push=push or None, video=False, check_steps=8)).url)
"""


def process(server, folder, code, *words):
    """A process of its own, since the library reads HF_ENDPOINT when it is imported."""
    home = {"HF_ENDPOINT": server.url, "HF_HOME": str(folder / "home"), "HF_TOKEN": "hf_x", "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=folder, env={**os.environ, **home, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_the_folder_holds_what_the_hub_expects_and_nothing_that_runs_code_when_read(run, tmp_path):
    result = share(ShareOptions(run=run, out=tmp_path / "shared", check_steps=8))
    assert result.url is None
    names = ["CartPole-v1.onnx", "README.md", "config.yml", "policy.safetensors", "replay.mp4", "results.json"]
    assert result.files == sorted([*names, "rims_runtime.py"]) == sorted(os.listdir(tmp_path / "shared"))
    _, front, page = (tmp_path / "shared/README.md").read_text().split("---\n", 2)
    card, score = yaml.safe_load(front), json.loads((run / "evaluation.json").read_text())
    assert card["library_name"] == "rims-rl" and "reinforcement-learning" in card["tags"]
    assert card["model-index"][0]["results"][0]["metrics"][0]["value"].startswith(f"{score['mean']:.2f} ")
    assert "rims-rl evaluate policy.safetensors" in page and "onnxruntime" in page
    share(ShareOptions(run=run, out=tmp_path / "shared", video=False, check_steps=8))  # renewed
    assert (tmp_path / "shared/README.md").read_text().count("## Where rims-rl is installed") == 1


def test_a_small_folder_is_scored_after_its_weights_were_rounded(run, tmp_path):
    folder = tmp_path / "small"
    result = share(ShareOptions(run=run, out=folder, small=True, episodes=4, check_steps=8, video=False))
    assert result.files == ["README.md", "config.yml", "policy.safetensors", "results.json"]
    policy, description = load_policy(folder)
    assert all(weight.equal(weight.half().float()) for weight in policy.parameters())
    assert evaluate_run(folder, 4, n_envs=4).scores == json.loads((folder / "results.json").read_text())["scores"]
    assert description.score.episodes == 4 and "weights were rounded to 16 bits" in (folder / "README.md").read_text()


class Unseen(gym.Env):
    """Has no render_modes."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


gym.register("Unseen-v0", entry_point=Unseen, max_episode_steps=5)


def test_what_cannot_be_shown_is_shared_without_a_video(tmp_path, caplog):
    caplog.set_level("INFO")
    run = train_run(Arguments(env="Unseen-v0", eval_freq=0), SMALL, tmp_path)
    result = share(ShareOptions(run=run, out=tmp_path / "shared", check_steps=8))
    assert "replay.mp4" not in result.files and {"README.md", "policy.safetensors", "Unseen-v0.onnx"} < {*result.files}
    assert "there will be no video: Unseen-v0 cannot be shown: it has no render_mode rgb_array" in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_one_sends_another_pulls_and_plays_alike(run, tmp_path):
    with hub() as server:
        kept = process(server, tmp_path, SHARE, run, "")
        assert kept.stdout == "None\n" and not server.asked, kept.stderr
        sent = process(server, tmp_path, SHARE, run, "me/agent")
        assert sent.stdout == f"{server.url}/me/agent\n", sent.stderr
        assert {name for _, name in server.files} == set(os.listdir(tmp_path / "shared")) - {".cache"}
        assert b"rims-rl evaluate hf:me/agent" in server.files["me/agent", "README.md"]
        server.asked.clear()
        played = process(server, tmp_path, COMMAND, "evaluate", "hf:me/agent", "--episodes", "3", "--n-envs", "2")
        assert played.returncode == 0, played.stderr
        fetched = {line.split("/")[-1] for line in server.asked if "/resolve/" in line}
        assert fetched == {"policy.safetensors"}, server.asked
        theirs = json.loads((tmp_path / "logs/hf/me/agent/evaluation.json").read_text())
        assert theirs["scores"] == json.loads((run / "evaluation.json").read_text())["scores"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_not_there_or_not_safetensors_is_one_sentence(run, tmp_path):
    with hub() as server:
        missing = process(server, tmp_path, COMMAND, "evaluate", "hf:me/nothere")
        assert missing.returncode == 2 and missing.stderr.count("\n") == 1, missing.stderr
        assert "policy.safetensors of hf:me/nothere was not moved" in missing.stderr
        server.files["me/evil", "policy.safetensors"] = b"not what it says"
        evil = process(server, tmp_path, COMMAND, "evaluate", "hf:me/evil")
        assert evil.returncode == 2 and "Traceback" not in evil.stderr and "policy.safetensors" in evil.stderr


def test_mistakes_are_one_sentence(run, tmp_path):
    with user_error("a name of the hub is owner/name, got 'me'"):
        share(ShareOptions(run=run, out=tmp_path, push="me"))
    with user_error("is not the folder of a run"):
        share(ShareOptions(run=tmp_path, out=tmp_path / "x"))
    (tmp_path / "README.md").write_text("mine")
    with user_error("is not a model card of rims-rl and would be lost"):
        share(ShareOptions(run=run, out=tmp_path))
