"""The benchmarks run, and write what they measured. No timing is asserted: that is what they are for."""

import json
import sys

import ale_py
import gymnasium
import pytest
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

from rims_rl import cli
from rims_rl.bench.plain_agent import PlainAgent


def bench(monkeypatch, capsys, out, *arguments):
    command = ["rims-rl", "bench", *arguments, "--quick", "--repeats", "1", "--threads", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 0
    assert f"written to {out}" in capsys.readouterr().out.replace("\n", "")
    result = json.loads(out.read_text())
    assert (
        result["torch"] and result["machine"]["cores"] and result["seconds"] > 0 and "median" in result["what"].lower()
    )
    return result


def test_bench_core(monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "core.json", "core")
    assert {case["cell"] for case in result["sequences"]} == {"lstm", "gru"}
    assert all(ms > 0 for case in result["sequences"] for ms in case["ms"].values())
    assert result["targets"][0]["reached"] > 0
    options = result["options"]
    assert set(options["engines"]) == set(options["ms"]) >= {"rims", "asleep='listen'", "scoff"}


@pytest.mark.slow
def test_bench_update(monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "update.json", "update")
    ours = {"ours, lstm", "ours, rims", "ours, rims, bf16", "ours, none"}
    names = ours | {"stock", "stock, shared", "cnn alone"}
    assert set(result["update_ms"]) == set(result["forward_ms"]) == names


@pytest.mark.slow
@pytest.mark.parametrize("env", ["DemonAttack", "PickupKnown"])
def test_bench_train(env, monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "train.json", "train", "--env", env)
    assert result["env"]["name"] == env
    more = {"stock, our vector env"} if env == "PickupKnown" else {"plain lstm", "ours, rims, bf16"}
    assert set(result["agents"]) == {"stock", "ours, rims", "ours, lstm", "ours, none"} | more
    one = result["agents"]["ours, rims"]
    parts = sum(result["where_rims_ms"].values())
    assert parts == pytest.approx(one["rollout_ms"] + one["update_ms"])


@pytest.mark.slow
def test_bench_export(monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "export.json", "export")
    assert [case["batch"] for case in result["cases"]] == [1, 8] and result["cases"][0]["us"]["onnx"] > 0


def test_bench_supervised(monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "supervised.json", "supervised")
    (case,) = result["cases"]
    assert {"rims", "rims, zoo settings", "lstm", "transformer"} < set(case["sequences_per_second"])
    data, speed = result["targets"]
    assert data["reached"] == max(case["data_share"].values()) > 0
    alone = case["core_forward_backward_ms"]
    assert speed["reached"] == alone["lstm"] / alone["rims"] and speed["target"] == 0.8  # as in bench core


def test_bench_trace(monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "trace.json", "trace")
    assert [(case["input"], case["batch"]) for case in result["cases"]] == [
        ("vector", 1), ("vector", 8), ("spatial", 1), ("spatial", 8),
    ]  # fmt: skip
    assert all(us > 0 for case in result["cases"] for us in case["us"].values()) and len(result["targets"]) == 8


def test_bench_stability(monkeypatch, capsys, tmp_path):
    out = tmp_path / "stability.json"
    monkeypatch.setattr(sys, "argv", ["rims-rl", "bench", "stability", "--core", "gru", "--quick", "--out", str(out)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 0 and "gru" in capsys.readouterr().out
    result = json.loads(out.read_text())
    (case,) = result["cases"]
    (state,) = case["largest_state"]
    assert 0 < state <= 1.0 and result["targets"][0]["reached"] == 1.0  # a GRU's h is bounded


def test_the_plain_agent_learns_from_the_advantages_that_it_should():
    gymnasium.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env("BreakoutNoFrameskip-v4", 2, seed=0), 4)
    torch.manual_seed(0)
    agent = PlainAgent(envs, hidden_size=8, n_steps=64, n_epochs=1, batch_size=64)
    before = [weight.clone() for weight in agent.parameters()]
    agent.rollout()
    buffer = RolloutBuffer(64, envs.observation_space, envs.action_space, gae_lambda=0.95, n_envs=2)
    _, done, _, _, value, reward = agent.kept
    with torch.no_grad():
        last = agent.critic(agent._remember(agent.obs, agent.state, agent.done)[0]).flatten()
    for ours, theirs in ((done, "episode_starts"), (value, "values"), (reward, "rewards")):
        getattr(buffer, theirs)[:] = ours
    buffer.compute_returns_and_advantage(last, agent.done.numpy())
    assert agent.advantages.numpy() == pytest.approx(buffer.advantages, abs=1e-5)
    agent.update()
    moved = [(now - then).abs().max() for now, then in zip(agent.parameters(), before, strict=True)]
    assert all(0 < by < 1e-2 for by in moved)
