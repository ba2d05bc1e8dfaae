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
from rims_rl.errors import UserError
from rims_rl.supervised.copying import Copying
from rims_rl.supervised.job import Job, run_job
from rims_rl.supervised.page import write_page
from rims_rl.supervised.task import load

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
    run_job(Job(Copying, config, 0), tmp_path / name, tmp_path / name, None, None)
    (path,) = (tmp_path / name / "copying").glob("*.json")
    return path


def test_a_training_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path):
    config = load(Copying, TINY)  # with dropout, so that torch's own random numbers matter too
    code = "from rims_rl.supervised import job; job.SAVE_EVERY = 0.0; from rims_rl.cli import main; main()"
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
        while not list(tmp_path.glob("supervised/copying/*")):
            time.sleep(0.01)
        time.sleep(0.3)
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
    assert f"{sum(means) / 2:.3f} ({min(means):.3f} to {max(means):.3f})" in page.replace("+", "")
    assert (tmp_path / "results/copying_learning.png").exists() and (
        tmp_path / "results/copying_activation.png"
    ).exists()


def test_the_papers_numbers_are_beside_the_settings_they_belong_to(tmp_path):
    path = finish(tmp_path, "a", load(Copying, [*TINY, "core=lstm", "iterations=1"]))
    result = json.loads(path.read_text())
    for number, (core, options) in enumerate([("lstm", {}), ("rims", {}), ("rims", {"communication": False})]):
        config = result["definition"]["config"] | {"core": core, "hidden_size": 600, "core_kwargs": options}
        tests = {f"span {span}": {"cross entropy": number + 0.5} for span in (50, 200)}
        copy = result | {"definition": {**result["definition"], "config": config}, "tests": tests, "on_the_way": []}
        path.with_name(f"{number}.json").write_text(json.dumps(copy))
    path.unlink()
    write_page(Copying, tmp_path / "a")
    page = (tmp_path / "a/copying.md").read_text()
    lines = [line for line in page.split("## Cross entropy")[1].split("## Against")[0].splitlines() if line[:1] == "|"]
    cells = {line.split("|")[-3].strip(): line.split("|")[-2].strip() for line in lines if "iterations=1" in line}
    assert (cells["0.500"], cells["1.500"], cells["2.500"]) == ("3.56", "0", "5")  # of span 200
    assert any(line == "| rims 9/9, 900 units | 0.03 | 0.24 |" for line in lines)
    assert not any(line.startswith("| lstm, 600 units |") for line in lines)
    assert page.count("## Against") == 1  # the one with all its parts, at this width
    against = [line for line in page.split("## Against rims 6/4, 600 units")[1].splitlines() if line[:1] == "|"]
    differences = {line.split(",")[0]: line.split("|")[-2].strip() for line in against if "iterations=1" in line}
    assert differences == {"| lstm": "-1.000", "| rims 6/4": "+1.000"}


def test_training_stops_when_the_loss_is_low_enough(tmp_path):
    result = json.loads(
        finish(tmp_path, "a", load(Copying, [*TINY, "core=lstm", "iterations=250", "stop_below=10"])).read_text()
    )
    assert result["iterations"] == 100 and result["stopped"] == "learned"


def test_a_damaged_result_is_named(tmp_path):
    path = finish(tmp_path, "a", load(Copying, [*TINY, "iterations=1", "core=lstm"]))
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match=r"\.json is damaged .* remove it to train again"):
        write_page(Copying, tmp_path / "a")


def test_a_loss_that_is_not_a_number_is_one_sentence(tmp_path):
    config = load(Copying, [*TINY, "learning_rate=1e30", "max_grad_norm=null"])
    with pytest.raises(
        UserError, match=r"training diverged: the loss of rims_0_\w+ is nan after .* smaller learning_rate"
    ):
        finish(tmp_path, "a", config)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["copyin"], "did you mean copying?"),
        ([], "which task is missing"),
        (["copying", "--page", "--results", "nowhere"], "nowhere/copying has no results; run some first"),
        (["copying", "--core", "lstn"], "did you mean 'lstm'?"),
    ],
)
def test_mistakes_get_one_sentence(arguments, words, monkeypatch, capsys):
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 2 and words in said.err


def test_tasks_are_listed(monkeypatch, capsys):
    code, said = command(monkeypatch, capsys, "--list")
    assert code == 0
    assert all(
        name in said.out
        for name in ("copying", "adding", "sequential_mnist", "bouncing_balls", "crops", "moving_mnist")
    )
