"""`rims-rl supervised`: training that can be killed, results that are not repeated, and the page."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rims_rl import cli
from rims_rl.supervised import training
from rims_rl.supervised.job import SupervisedJob
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks.copying import Copying

TINY = [
    "digits=2", "span=3", "test_spans=[3,6]", "hidden_size=12", "embedding_size=4", "batch_size=4", "iterations=100",
    "test_every=40", "test_sequences=20",
]  # fmt: skip
SETS = [part for setting in TINY for part in ("--set", setting)]


def command(monkeypatch, capsys, *arguments):
    """Run the command line here, and return its exit code and what it said."""
    monkeypatch.setattr(sys, "argv", ["rims-rl", "supervised", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return exit_.value.code, capsys.readouterr()


def outcome(path):
    """What must not depend on interruptions."""
    result = json.loads(path.read_text())
    return {key: result[key] for key in ("tests", "curve", "on_the_way", "iterations", "record", "hash")}


def finish(tmp_path, name, config):
    job = SupervisedJob(Copying, config, 0)
    job.run(tmp_path / name / "supervised/copying" / job.name, tmp_path / name / "copying", threads=1)
    (path,) = (tmp_path / name / "copying").glob("*.json")
    return path


def test_a_training_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path):
    config = load(Copying, TINY)  # with dropout, so that torch's own random numbers matter too
    code = "from rims_rl.supervised import training; training.SAVE_EVERY = 0.0; from rims_rl.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "supervised", "copying", *SETS, "--threads=1", "--results=b", "--logdir=b"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("b/supervised/copying/*/checkpoint.pt")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    killed, whole = finish(tmp_path, "b", config), finish(tmp_path, "a", config)
    assert json.loads(killed.read_text())["resumed_from"] and not json.loads(whole.read_text())["resumed_from"]
    assert outcome(killed) == outcome(whole)


def test_sigterm_saves_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    arguments = (
        "copying",
        *SETS,
        "--threads",
        1,
        "--results",
        tmp_path,
        "--logdir",
        tmp_path,
        "--set",
        "iterations=3000",
    )

    def stop():
        while not list(tmp_path.glob("supervised/copying/*/iterations.txt")):  # after the first one
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 128 + signal.SIGTERM and "the same command goes on from there" in said.out
    (checkpoint,) = tmp_path.glob("supervised/copying/*/checkpoint.pt")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 2 and "is damaged" in said.err and "remove it to train again" in said.err


def test_seeds_and_cores_give_a_page_and_are_not_repeated(tmp_path, monkeypatch, capsys):
    places = ("--threads", 1, "--results", tmp_path / "results", "--logdir", tmp_path / "logs")
    arguments = ("copying", "--core", "rims", "--core", "lstm", *SETS, "--set", "core_kwargs={}", "--seeds", 2, *places)
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 0 and "4 results: written to" in said.out.replace("\n", "")
    files = sorted((tmp_path / "results/copying").glob("*.json"))
    before = [path.stat().st_mtime_ns for path in files]
    assert [path.name.split("_")[:2] for path in files] == [[core, seed] for core in ("lstm", "rims") for seed in "01"]
    command(monkeypatch, capsys, *arguments)
    assert [path.stat().st_mtime_ns for path in files] == before
    result = json.loads(files[0].read_text())
    assert result["stopped"] == "budget" and result["parameters"]["core"] == 4 * 12 * (4 + 12 + 2)
    assert (tmp_path / f"logs/supervised/copying/{files[0].stem}/network.safetensors").exists()

    page = (tmp_path / "results/copying.md").read_text()
    assert "**This page is partial**" in page and "## Cross entropy" in page and "## Against rims 6/4, 12 units" in page
    means = [json.loads(path.read_text())["tests"]["span 3"]["accuracy"] for path in files[:2]]
    assert f"{sum(means) / 2:.3f} ({min(means):.3f} to {max(means):.3f})<br>{means[0]:.3f}, {means[1]:.3f}" in page
    assert (tmp_path / "results/copying_learning.png").exists() and (
        tmp_path / "results/copying_activation.png"
    ).exists()


def test_training_stops_when_the_loss_is_low_enough(tmp_path):
    result = json.loads(
        finish(tmp_path, "a", load(Copying, [*TINY, "core=lstm", "iterations=250", "stop_below=10"])).read_text()
    )
    assert result["iterations"] == 100 and result["stopped"] == "learned"


def test_a_training_that_diverges_is_a_result_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    places = ("--threads", 1, "--results", tmp_path, "--logdir", tmp_path)
    bad = ("--set", "learning_rate=1e30", "--set", "max_grad_norm=null", "--seeds", 2)
    code, said = command(monkeypatch, capsys, "copying", *SETS, *bad, *places)
    assert code == 0 and "2 of 2 trainings diverged, which the page counts as failures: rims_0_" in said.out
    for path in (tmp_path / "copying").glob("*.json"):
        result = json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN, which is not JSON
        assert result["stopped"] == "diverged" and result["iterations"] < 100 and result["curve"][-1][1] is None


def test_a_loss_far_above_the_first_ends_training(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "WINDOW", 1)
    config = load(Copying, [*TINY, "learning_rate=10", "max_grad_norm=null", "core=lstm"])
    result = json.loads(finish(tmp_path, "a", config).read_text())
    *before, last = [loss for _, loss in result["curve"]]
    assert result["stopped"] == "diverged" and last > 10 * before[0] >= max(before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["copyin"], "did you mean copying?"),
        ([], "which task is missing"),
        (["copying", "--page", "--results", "nowhere"], "nowhere/copying has no results; run some first"),
        (["copying", "--core", "lstn"], "did you mean 'lstm'?"),
        (["copying", "--set", "hidden_size"], "must be key=value, such as hidden_size=300 or core_kwargs.comm"),
        (["copying", "--results", __file__], "test_experiment.py/copying cannot be written: Not a directory"),
        (["copying", "--logdir", __file__], "test_experiment.py/supervised/copying cannot be written: Not a directory"),
        (["copying", "--ablations", "--core", "lstm"], "--ablations are of RIMs, got --core lstm too"),
        (["adding", "--ablations"], "adding has no ablations; copying and bouncing_balls have"),
    ],
)
def test_mistakes_get_one_sentence(arguments, words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 2 and words in said.err


def test_ablations_are_trained_with_rims_of_one_width(tmp_path, monkeypatch, capsys):
    places = ("--threads", 1, "--results", tmp_path, "--logdir", tmp_path)
    once = ("--set", "iterations=1", "--set", "test_sequences=4", "--set", "core_kwargs={}")
    code, _ = command(monkeypatch, capsys, "copying", *SETS, *once, "--ablations", *places)
    assert code == 0
    done = [json.loads(path.read_text())["definition"]["config"] for path in (tmp_path / "copying").glob("*.json")]
    found = {(c["num_rims"], c["num_active"], *c["core_kwargs"]) for c in done}
    assert {(6, 4), (6, 2), (9, 4), (6, 4, "communication"), (6, 6, "input_attention")} < found
    assert {config["hidden_size"] / config["num_rims"] for config in done} == {2}
    assert "## Ablations" in (tmp_path / "copying.md").read_text()


def test_tasks_are_listed(monkeypatch, capsys):
    code, said = command(monkeypatch, capsys, "--list")
    assert code == 0
    assert all(
        name in said.out
        for name in ("copying", "adding", "sequential_mnist", "bouncing_balls", "crops", "moving_mnist")
    )


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ([], {"input_dropout": 0.1, "comm_dropout": 0.1}),
        (["core_kwargs.communication=false"], {"input_dropout": 0.1, "comm_dropout": 0.1, "communication": False}),
        (["core_kwargs={communication: false}"], {"communication": False}),
        (["core_kwargs={}"], {}),
        (["core_kwargs={cell: gru}", "core_kwargs.comm_heads=2"], {"cell": "gru", "comm_heads": 2}),
        (["core_kwargs.comm_heads=2", "core_kwargs={cell: gru}"], {"cell": "gru", "comm_heads": 2}),
        (["core_kwargs={cell: gru, comm_heads: 1}", "core_kwargs.comm_heads=2"], {"cell": "gru", "comm_heads": 2}),
    ],
)
def test_options_of_the_core_are_replaced_whole_or_changed_one_by_one(settings, options):
    assert load(Copying, settings).core_kwargs == options


def test_what_each_core_has_is_said_before_training(tmp_path, monkeypatch, capsys):
    sets = [*SETS, "--set", "iterations=1", "--set", "core_kwargs={cell: gru}", "--seeds", "2"]
    places = ["--threads", "1", "--results", tmp_path, "--logdir", tmp_path]
    code, said = command(monkeypatch, capsys, "copying", *sets, *places)
    lines = said.out.splitlines()
    assert code == 0 and lines[0] == "core rims 6/4, 12 units, 1 layer, core_kwargs: cell=gru"
    assert "\n".join(lines).count("core_kwargs") == 1
    code, said = command(monkeypatch, capsys, "copying", "--core", "lstm", *SETS, "--set", "iterations=1", *places)
    assert code == 0 and said.out.startswith("core lstm, 12 units, 1 layer, core_kwargs: none\n")
