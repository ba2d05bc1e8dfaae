"""Supervised trainings as jobs in processes of their own: side by side, killed, looked at, and on Ray."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rims_rl.cli import app
from rims_rl.cli.app import with_flags
from rims_rl.common.errors import UserError
from rims_rl.jobs.engines.local import COMMAND
from tests.helpers.jobs import children_of, wait_until
from tests.helpers.ray_cluster import ray_cluster

TINY = [
    "digits=2", "span=3", "test_spans=[3,6]", "hidden_size=12", "embedding_size=4", "batch_size=4", "test_every=1000",
    "test_sequences=20",
]  # fmt: skip
SETS = [part for setting in TINY for part in ("--set", setting)]


def words(folder, *more, iterations=100):
    """What follows ``rims-rl``, for two seeds."""
    places = ["--results", folder / "results", "--logdir", folder / "logs", "--seeds", 2]
    return [str(w) for w in ("supervised", "copying", *SETS, "--set", f"iterations={iterations}", *places, *more)]


def invoke(folder, *more, **options):
    """Run the command here, and return what it printed."""
    done = CliRunner().invoke(app, words(folder, *more, **options))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def launch(folder, *more, env=None, **options):
    """Run the command in a process of its own."""
    command = [sys.executable, "-c", COMMAND, *words(folder, *more, **options)]
    with (folder / "command.txt").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=env)


def outcomes(folder):
    """What must depend neither on where trainings run nor on interruptions."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("results/copying/*.json"))]
    keys = ("hash", "definition", "tests", "curve", "on_the_way", "iterations", "record")
    return [{key: result[key] for key in keys} for result in results]


def counts(folder):
    """When each training that is under way last said how far it is."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("logs/supervised/copying/*/iterations.txt")}


def resumed(folder):
    return [json.loads(path.read_text())["resumed_from"] for path in sorted(folder.glob("results/copying/*.json"))]


def test_trainings_side_by_side_come_to_the_same_as_one_after_the_other_and_are_not_repeated(tmp_path):
    (here := tmp_path / "here").mkdir()
    (apart := tmp_path / "apart").mkdir()
    invoke(here, "--threads", 1)
    text = invoke(apart, "--jobs", 2)
    assert "copying: 0 of 2 jobs are finished, 2 to do" in text and text.count(": finished, ") == 2
    assert f"2 results: written to {apart}/results/copying.md" in text.replace("\n", "")
    assert len(outcomes(here)) == 2 and outcomes(apart) == outcomes(here)
    for job in (apart / "logs/supervised/copying").iterdir():
        names = {path.name for path in job.iterdir()}
        assert {"network.safetensors", "log.txt"} <= names and not {"checkpoint.pt", "iterations.txt"} & names
    assert "2 of 2 jobs are finished, 0 to do" in invoke(apart, "--jobs", 2)
    assert "2 jobs: 2 finished" in invoke(here, "--status")


@pytest.mark.slow
def test_a_command_that_is_stopped_goes_on_and_a_training_that_is_killed_is_tried_again(tmp_path):
    (stopped := tmp_path / "stopped").mkdir()
    (whole := tmp_path / "whole").mkdir()
    command = launch(stopped, "--jobs", 2, iterations=800)
    wait_until(lambda: len(counts(stopped)) == 2)
    assert "2 jobs: 2 running" in invoke(stopped, "--status", iterations=800)
    command.send_signal(signal.SIGINT)
    assert command.wait() == 130
    text = (stopped / "command.txt").read_text()
    assert "waiting for 2 jobs to save" in text and "stopped; to go on: rims-rl supervised copying" in text
    text = invoke(stopped, "--status", iterations=800)
    assert "2 jobs: 2 interrupted" in text and "stopped after" in text

    before = counts(stopped)
    command = launch(stopped, "--jobs", 2, iterations=800)
    wait_until(lambda: all(now > before[job] for job, now in counts(stopped).items()))
    os.kill(children_of(command.pid)[0], signal.SIGKILL)
    assert command.wait() == 0
    assert (stopped / "command.txt").read_text().count("was ended by signal 9; it will be tried again") == 1
    invoke(whole, "--threads", 1, iterations=800)
    assert all(resumed(stopped)) and not any(resumed(whole))
    assert len(outcomes(stopped)) == 2 and outcomes(stopped) == outcomes(whole)


def test_a_training_that_fails_does_not_stop_the_others_which_get_their_page(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(
        "import sys\nfrom rims_rl.core.memories.baselines import LSTM\n\ndef core(*sizes, **options):\n"
        "    if 'job' in sys.argv:\n        raise ValueError('not in a job')\n    return LSTM(*sizes, **options)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    cores = ["--core", "failing.core", "--core", "lstm", "--seeds", "1"]
    done = CliRunner().invoke(app, words(tmp_path, "--jobs", "2", *cores))
    assert done.exit_code == 1 and "1 of 2 jobs failed" in done.output and "not in a job" in done.output
    assert "1 results: written to" in done.output
    assert [path.name[:7] for path in tmp_path.glob("results/copying/*.json")] == ["lstm_0_"]


def test_a_dry_run_measures_and_leaves_nothing(tmp_path):
    text = " ".join(invoke(tmp_path, "--dry-run", "--threads", 1, iterations=1_000_000).split())
    assert "iterations/s" in text and text.count("to do") == 2
    assert "0 of 2 jobs are finished. The others take" in text and "with 1 side by side" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_trainings_on_ray_come_to_the_same(tmp_path):
    (on_ray := tmp_path / "on_ray").mkdir()
    (here := tmp_path / "here").mkdir()
    with ray_cluster() as cluster:
        cluster.start(f"--address={cluster.address}", "--num-cpus=2")
        command = launch(on_ray, "--engine", "ray", "--ray-address", cluster.address, env=cluster.env, iterations=10)
        cluster.commands.append(command)
        wait_until(lambda: command.poll() is not None, seconds=600)  # Ray's workers are nice to all others
    assert command.returncode == 0, (on_ray / "command.txt").read_text()
    invoke(here, "--threads", 1, iterations=10)
    assert len(outcomes(on_ray)) == 2 and outcomes(on_ray) == outcomes(here)


def test_mistakes_get_one_sentence(tmp_path):
    for more, sentence in (
        (["--engine", "slurm"], "--engine must be local or ray, got 'slurm'"),
        (["--gpus", "1"], "--ray-address and --gpus are for --engine ray; add that"),
        (["--jobs", "4097"], "4,097 jobs of 1 thread are more than the"),
    ):
        done = CliRunner().invoke(app, words(tmp_path, *more))
        assert isinstance(done.exception, UserError) and with_flags(str(done.exception)).startswith(sentence)
    assert not list(tmp_path.iterdir())
