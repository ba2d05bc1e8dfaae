"""The benchmarks run, and write what they measured. No timing is asserted: that is what they are for."""

import json
import sys

import pytest

from rims_rl import cli


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


@pytest.mark.slow
def test_bench_update(monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "update.json", "update")
    names = {"stock", "stock, shared", "ours, lstm", "ours, rims", "ours, none", "cnn alone"}
    assert set(result["update_ms"]) == set(result["forward_ms"]) == names


@pytest.mark.slow
@pytest.mark.parametrize("env", ["DemonAttack", "PickupKnown"])
def test_bench_train(env, monkeypatch, capsys, tmp_path):
    result = bench(monkeypatch, capsys, tmp_path / "train.json", "train", "--env", env)
    assert result["env"]["name"] == env
    more = {"stock, our vector env"} if env == "PickupKnown" else set()
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
