"""Trained agents that come with the repository: what there is plays as its card says, and what is not there is said."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.words import mean_in_words
from rims_rl.exporting import trained_agents
from tests.helpers.attacking import command
from tests.helpers.verbs import evaluate_run, user_error

NAMES = sorted(trained_agents.trained_agents())
SMALLEST = "zoo:CartPole-v1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(*words):
    """What a command that must succeed says."""
    code, said = command(words, seconds=240)
    assert code == 0, said
    return said


def test_agents_lists_each_with_its_score(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = told("zoo", "agents")
    for name in NAMES:
        result = json.loads((trained_agents.FOLDER / name / "results.json").read_text())
        assert f"zoo:{name} " in said and f"{result['mean']:,.2f} ({result['mean_95'][0]:,.2f} to" in said


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_small_and_its_card_has_the_score_of_its_rounded_weights(name):
    folder = trained_agents.FOLDER / name
    assert sum(file.stat().st_size for file in folder.iterdir()) < 9e6
    assert {weight.dtype for weight in load_file(folder / "policy.safetensors").values()} == {torch.float16}
    policy, description = load_policy(folder)
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}
    result, card = json.loads((folder / "results.json").read_text()), (folder / "README.md").read_text()
    assert description.score.mean == result["mean"] and result["steps"] == description.steps > 0
    assert (
        f"Mean {mean_in_words(result['mean'], result['mean_95'])[5:]}" in card
        and "rounded to 16 bits (float16), and then its score" in card
    )


@pytest.mark.slow
def test_an_agent_plays_as_its_result_says(here):
    result = json.loads((trained_agents.FOLDER / "CartPole-v1/results.json").read_text())
    again = evaluate_run(trained_agents.take(SMALLEST), result["episodes"], n_envs=8)
    assert again.mean == pytest.approx(result["mean"], rel=0.05)  # other processors may round otherwise


@pytest.mark.slow
def test_every_verb_takes_the_name_of_an_agent_and_leaves_the_repository_as_it_is(here):
    before = {file: file.stat().st_mtime_ns for file in trained_agents.FOLDER.rglob("*")}
    told("evaluate", SMALLEST, "--episodes", "2", "--n-envs", "2", "--threads", "1")
    told("enjoy", SMALLEST, "--max-steps", "4", "--threads", "1")
    told("inspect", SMALLEST, "--max-steps", "4", "--threads", "1", "--compare", SMALLEST, "--pictures", "pictures")
    told("export", SMALLEST, "--format", "safetensors")
    small = ["--set", "n_steps=8", "--set", "sequence_length=8", "--set", "batch_size=16", "-n", "16", "--n-envs", "2"]
    told("train", "--env", "CartPole-v1", "--init-from", SMALLEST, "--eval-freq", "0", "--threads", "1", *small)
    made = {path.name for path in Path("logs/zoo/CartPole-v1").iterdir()}
    assert made >= {"policy.safetensors", "evaluation.json", "videos", "recordings", "CartPole-v1.safetensors"}
    assert before == {file: file.stat().st_mtime_ns for file in trained_agents.FOLDER.rglob("*")}


def test_a_name_that_nobody_has_is_one_sentence_with_those_there_are(here):
    code, said = command(["evaluate", "zoo:Nobody"])
    assert code == 2 and said.count("\n") == 1
    assert f"there is no trained agent called 'Nobody'; there are {', '.join(trained_agents.trained_agents())}" in said
    code, said = command(["enjoy", "zoo:cartpole"])
    assert code == 2 and "did you mean CartPole-v1?" in said
    code, said = command(["enjoy", "zoo:../agents/CartPole-v1"])
    assert code == 2 and "there is no trained agent called '../agents/CartPole-v1'" in said


def test_a_damaged_agent_and_an_installation_without_agents_are_one_sentence(here, monkeypatch):
    monkeypatch.setattr(trained_agents, "FOLDER", here / "agents")
    with user_error("trained agents are in docs/agents of the repository, and .* has none; clone the repository, or"):
        trained_agents.take("zoo:Mine")
    (here / "agents/Mine").mkdir(parents=True)
    (here / "agents/Mine/policy.safetensors").write_bytes(b"not what it says")
    for words in (["enjoy", "zoo:Mine"], ["zoo", "agents"]):
        code, said = command(words)
        assert code == 2 and "damaged or not a safetensors file" in said and "Traceback" not in said, said
