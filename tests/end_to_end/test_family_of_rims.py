"""``scoff``, ``brims`` and ``rims-workspace`` by name, from the command line: trained, resumed, played without a RIM,
exported, inspected."""

import json
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rims_rl import cli

FAMILY = ["scoff", "brims", "rims-workspace"]
SMALL = [
    "num_rims=3", "num_active=2", "rim_size=4", "critic=shared", "n_envs=2", "n_steps=32", "batch_size=32",
    "n_epochs=1",
    "learning_rate=1e-3",  # the zoo's falls until the last step, which is another one before a run is resumed
]  # fmt: skip


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rims-rl", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return exit_.value.code


def train(monkeypatch, core, logdir, steps, *more):
    flags = ["--env", "CartPole-v1", "--core", core, "--seed", 0, "-n", steps, "--eval-freq", 0, "--logdir", logdir]
    flags += [
        "--threads",
        1,
        "--exact-resume",
        "--checkpoint-freq",
        128,
        *(f"--set={setting}" for setting in SMALL),
        *more,
    ]
    code = command(monkeypatch, "train", *flags)
    return code, logdir / "ppo" / "CartPole-v1_1"


@pytest.mark.parametrize("core", FAMILY)
def test_a_run_trains_resumes_to_the_bit_plays_without_a_rim_and_is_inspected(core, tmp_path, monkeypatch, caplog):
    with caplog.at_level("INFO", "rims_rl"):
        code, whole = train(monkeypatch, core, tmp_path / "whole", 256)
    assert code == 0 and "its RIMs run in the readable engine" in caplog.text
    code, run = train(monkeypatch, core, tmp_path / "stopped", 128)
    assert code == 0 and command(monkeypatch, "train", "--resume", run, "-n", 256) == 0
    ours, theirs = (load_file(folder / "policy.safetensors") for folder in (run, whole))
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)

    events = EventAccumulator(str(run / "tensorboard")).Reload()
    assert {"rims/active_0", "rims/active_2", "rims/largest_state"} <= set(events.Tags()["scalars"])
    assert command(monkeypatch, "evaluate", run, "--episodes", 2, "--n-envs", 2, "--threads", 1, "--drop", "each") == 0
    assert list(json.loads((run / "drop_each.json").read_text())["removed"]) == ["none", "0", "1", "2"]

    out = tmp_path / "x.npz"
    assert command(monkeypatch, "inspect", run, "--episodes", 1, "--out", out) == 0
    with np.load(out) as recorded:
        about, active, heard = json.loads(str(recorded["about"])), recorded["active"], recorded["communication"]
    assert about["elements"] == ["observation", *(["layer above"] if core == "brims" else [])]
    np.testing.assert_allclose(heard.sum(-1), active, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("core", FAMILY)
def test_a_trained_run_is_exported_and_plays_the_same(core, tmp_path, monkeypatch, capsys):
    _, run = train(monkeypatch, core, tmp_path, 256)
    assert command(monkeypatch, "export", run, "--format", "onnx") == 0
    assert "same actions" in capsys.readouterr().out and (run / "CartPole-v1.onnx").exists()


def test_one_layer_for_brims_is_refused_in_one_sentence(tmp_path, monkeypatch, capsys):
    code, run = train(monkeypatch, "brims", tmp_path, 128, "--set=policy_kwargs.num_layers=1")
    assert code == 2 and not run.exists()
    said = capsys.readouterr().err
    assert "num_layers must be at least 2 where layers listen to the one above, got 1" in " ".join(said.split())
