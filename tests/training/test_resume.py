"""Runs that are killed, stopped, damaged or out of disk go on as if nothing had happened."""

import contextlib
import functools
import io
import json
import multiprocessing
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from rims_rl import cli
from rims_rl.agents.saved.policy_files import read_description
from rims_rl.cli.app import shown_messages
from rims_rl.cli.training_commands import print_training
from rims_rl.common.errors import UserError
from rims_rl.config.layers import parse_overrides
from rims_rl.runs.folder import Arguments
from rims_rl.training.train import TrainOptions, train
from tests.helpers.verbs import resume_run, train_run, user_error

# Real processes, which need no seconds to import torch.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["rims_rl.training.train", "torch._dynamo"])

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=32"]
PPO = [*SMALL, "batch_size=32", "n_epochs=1"]


def arguments(env, **others):
    defaults = {"env": env, "device": "cpu", "eval_freq": 128, "eval_episodes": 2, "checkpoint_freq": 128}
    return Arguments(**defaults | others)


EXACT = {
    "Breakout": (
        arguments("Breakout", exact_resume=True, checkpoint_freq=384, eval_freq=400, eval_episodes=1),
        [*PPO, "n_timesteps=768"],
    ),
    "Breakout, bf16": (
        arguments("Breakout", exact_resume=True, checkpoint_freq=384, eval_freq=400, eval_episodes=1),
        [*PPO, "n_timesteps=768", "policy_kwargs.precision=bf16"],
    ),
    "CartPole-v1": (
        arguments("CartPole-v1", exact_resume=True, eval_freq=256),
        [*PPO, "n_timesteps=768", "normalize=true", "learning_rate=lin_1e-3"],
    ),
    "Pendulum-v1": (  # normalizes too
        # not fewer checkpoints: one may be written too fast to be seen
        arguments("Pendulum-v1", algo="a2c", exact_resume=True, checkpoint_freq=512, eval_freq=600, eval_episodes=1),
        [*SMALL, "n_steps=4", "n_timesteps=2048"],
    ),
}


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The run of each setting in EXACT, trained in one go."""
    return functools.cache(lambda env: train_run(EXACT[env][0], EXACT[env][1], tmp_path_factory.mktemp("whole")))


def flags(args, overrides):
    """The same for the command line."""
    words = [
        f"--{key.replace('_', '-')}={value}"
        for key, value in args.model_dump(exclude={"exact_resume", "columns"}, exclude_none=True).items()
    ]
    return words + ["--exact-resume"] * args.exact_resume + [f"--set={override}" for override in overrides]


def launch(log, *words):
    """``rims-rl train`` in a process of its own, which writes what it says to ``log``."""
    code = (
        f"import os, sys\nlog = os.open({str(log)!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\n"
        f"os.dup2(log, 1)\nos.dup2(log, 2)\nsys.argv = {['rims-rl', 'train', *map(str, words)]!r}\n"
        "from rims_rl.cli import main\nmain()\n"
    )
    process = PROCESSES.Process(target=exec, args=(code,))
    process.start()
    return process


def wait_until(condition, process, every=0.02):
    deadline = time.time() + 200
    while not condition() and process.is_alive():
        assert time.time() < deadline
        time.sleep(every)


def steps_of(run):
    return sorted(int(path.stem) for path in (run / "checkpoints").glob("*.pt"))


def episodes(run):
    header, columns, *rows = (run / "0.monitor.csv").read_text().splitlines()
    assert header.startswith('#{"t_start"') and columns == "r,l,t"
    return [row.split(",")[:2] for row in rows]


def outcome(run):
    """All that a run leaves, except times."""
    assert len(scalars(run)) > 10 and len(episodes(run)) > 2
    with np.load(run / "evaluations.npz") as evaluations:
        evaluated = {name: evaluations[name].tolist() for name in evaluations}
    return {
        "weights": (run / "policy.safetensors").read_bytes(),
        "best": (run / "best/policy.safetensors").read_bytes(),
        "description": read_description(run),
        "episodes": episodes(run),
        "evaluations": evaluated,
        "scalars": [event for event in scalars(run) if event[0] != "time/fps"],
    }


def scalars(run):
    """Every number and picture in the one event file: its name, step and value, in the order of the file."""
    (path,) = (run / "tensorboard").iterdir()
    events = EventFileLoader(str(path)).Load()
    return [(value.tag, event.step, _number(value)) for event in events for value in event.summary.value]


def _number(value):
    if not value.HasField("tensor"):
        return value.simple_value
    return value.tensor.float_val[0] if value.tensor.float_val else value.tensor.SerializeToString()


@pytest.mark.parametrize("env", EXACT)
def test_a_run_killed_several_times_equals_one_that_was_never_stopped(env, never_stopped, tmp_path):
    whole = never_stopped(env)
    run = tmp_path / whole.parent.name / whole.name
    process = launch(tmp_path / "log", *flags(*EXACT[env]), "--logdir", tmp_path)
    newest = -1
    for how in ("kill", "kill while writing", "terminate"):
        wait_until(lambda: steps_of(run)[-1:] > [newest], process)  # noqa: B023
        if how == "kill while writing":
            wait_until(lambda: list(run.glob("checkpoints/.*.pt.*")), process, every=0.0005)
        else:
            time.sleep(random.uniform(0, 0.3))
        process.terminate() if how == "terminate" else process.kill()
        process.join()
        newest = steps_of(run)[-1]
        process = launch(tmp_path / "log", "--resume", run)
    process.join()
    log = (tmp_path / "log").read_text()
    assert process.exitcode == 0 or "has finished" in log, log
    assert outcome(run) == outcome(whole)
    assert len(json.loads((run / "run.json").read_text())["resumed_from"]) >= 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(number, tmp_path):
    args = arguments("CartPole-v1", checkpoint_freq=10**6, eval_freq=0)
    process = launch(tmp_path / "log", *flags(args, [*PPO, "n_timesteps=1e6"]), "--logdir", tmp_path)
    run = tmp_path / "ppo/CartPole-v1_1"
    wait_until(lambda: any((run / "tensorboard").glob("*")) and len(scalars(run)) > 50, process)
    assert json.loads((run / "run.json").read_text())["finished"] is False
    with pytest.raises(UserError, match="CartPole-v1_1 is being trained by another process"):
        resume_run(run, None)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 128 + number
    steps = steps_of(run)[-1]
    log = (tmp_path / "log").read_text()
    assert f"to go on from the checkpoint at {steps:,}: rims-rl train --resume {run}" in log
    played, logged = episodes(run), scalars(run)
    resume_run(run, steps + 128)
    assert read_description(run).steps == steps + 128
    assert episodes(run)[: len(played)] == played and scalars(run)[: len(logged)] == logged


def test_a_resumed_run_goes_on_where_it_was(tmp_path):
    args = arguments("CartPole-v1", checkpoint_freq=256)
    run = train_run(args, [*PPO, "n_timesteps=320", "learning_rate=lin_1e-3"], tmp_path)
    (run / "checkpoints/320.pt").unlink()  # as if it had been killed after 320 steps: more is on disk than at 256
    (run / "run.json").unlink()
    resume_run(run, 512)
    assert steps_of(run) == [256, 512]
    numbers = scalars(run)
    for name in ("rollout/ep_rew_mean", "train/learning_rate", "rims/active_0", "eval/mean_reward"):
        steps = [step for tag, step, _ in numbers if tag == name]
        every, first = (128, 128) if name.startswith("eval") else (64, 128 if name.startswith("train") else 64)
        assert steps == list(range(first, 513, every)), name
    rates = {step: value for tag, step, value in numbers if tag == "train/learning_rate"}
    assert rates[256] == pytest.approx(1e-3 * (1 - 192 / 320))  # written with the next rollout
    assert rates[384] == pytest.approx(1e-3 * (1 - 320 / 512))  # -n gives the schedule a new end
    assert sum(int(length) for _, length in episodes(run)) <= 512
    assert outcome(run)["evaluations"]["timesteps"] == [128, 256, 384, 512]
    assert len((run / "command.txt").read_text().splitlines()) == 2
    with user_error("has finished its 512 steps; to train it longer, give -n with more than 512"):
        resume_run(run, None)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def leave_out_a_piece(path):
    pieces = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w") as archive:
        for name in pieces.namelist():
            if not name.endswith("data/3"):
                archive.writestr(name, pieces.read(name))


def put_code_into(path):
    class Code:
        def __reduce__(self):
            return os.mkdir, (str(path.parent / "executed"),)

    torch.save({"format": 1, "policy": Code()}, path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with checkpoints at 256 and 320 steps."""
    args = arguments("CartPole-v1", checkpoint_freq=256, eval_freq=0)
    return train_run(args, [*PPO, "n_timesteps=320"], tmp_path_factory.mktemp("logs"))


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, leave_out_a_piece, lambda path: path.write_bytes(b"garbage")])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(damage, finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    damage(run / "checkpoints/320.pt")
    contents = (run / "checkpoints/320.pt").read_bytes()
    with shown_messages():
        resume_run(run, 384)
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"rims-rl: {run}/checkpoints/320.pt is damaged (")
    assert json.loads((run / "run.json").read_text())["resumed_from"] == [256]
    assert steps_of(run) == [256, 384]
    assert (run / "checkpoints/320.pt.damaged_1").read_bytes() == contents


def change_checkpoint(path, **changes):
    torch.save(torch.load(path, weights_only=True) | changes, path)


def fail_to_read(path):
    path.unlink()
    path.symlink_to("/proc/self/mem")  # reading address 0 of it is an input/output error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: change_checkpoint(path, format=2), "has the format 2, and this version of rims-rl reads 1"),
        (fail_to_read, "cannot be read: Input/output error"),
        (put_code_into, "holds more than tensors and plain values"),
        (lambda path: change_checkpoint(path, optimizer=[]), "optimizer: Input should be a valid dictionary"),
        (lambda path: torch.save({"format": 1}, path), "policy: Field required"),
        (lambda path: torch.save([], path), "must hold a dictionary, got list"),
    ],
)
def test_a_checkpoint_that_may_be_good_stops_with_a_sentence_and_stays(change, words, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    change(run / "checkpoints/320.pt")
    with pytest.raises(UserError, match=words):
        resume_run(run, 384)
    assert steps_of(run) == [256, 320] and not (run / "checkpoints/executed").exists()


@pytest.mark.parametrize("exact", [True, False])
def test_a_checkpoint_of_other_loops_is_refused_if_bits_matter_and_else_said(exact, tmp_path, capsys):
    args = arguments("CartPole-v1", exact_resume=exact, eval_freq=0)
    run = train_run(args, [*PPO, "n_timesteps=128"], tmp_path)
    here = torch.load(run / "checkpoints/128.pt", weights_only=True)["engine"]
    other = "torch" if here == "C" else "C"
    change_checkpoint(run / "checkpoints/128.pt", engine=other)
    words = f"the checkpoint was made with the loops of RIMs in {other}, and here they are in {here}"
    if exact:
        with pytest.raises(UserError, match=f"wants to be resumed to the bit, but {words}"):
            resume_run(run, 192)
        change_checkpoint(run / "checkpoints/128.pt", engine=here)
    with shown_messages():
        resume_run(run, 192)
    assert capsys.readouterr().err == ("" if exact else f"rims-rl: {words}, so that the last bits will differ\n")
    assert steps_of(run)[-1] == 192


def test_what_killed_processes_left_half_written_is_cleared(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    ended = subprocess.Popen(["true"])
    ended.wait()
    here = platform.node()
    gone, living, elsewhere = (
        run / f"checkpoints/.320.pt.{name}" for name in (f"{ended.pid}@{here}", f"1@{here}", f"{ended.pid}@not-{here}")
    )
    for path in (gone, living, elsewhere):
        path.touch()
    resume_run(run, 384)
    assert not gone.exists() and living.exists() and elsewhere.exists()


def test_what_cannot_be_resumed_is_one_sentence_and_is_left_as_it_is(finished, tmp_path, capsys, monkeypatch):
    def says(*words):
        monkeypatch.setattr(sys, "argv", ["rims-rl", "train", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    run = shutil.copytree(finished, tmp_path / "run")
    assert says() == "rims-rl: what to train on is missing: give --env, such as --env DemonAttack, or --resume RUN"
    assert "is not the folder of a run; give one such as" in says("--resume", tmp_path)
    assert f"--resume takes its settings from {run}, and only -n besides; leave out --seed" in says(
        "--resume", run, "--seed", "0"
    )
    assert "has finished its 320 steps" in says("--resume", run)
    assert "has finished its 320 steps; to train it longer, give -n with more than 320, got 200" in says(
        "--resume", run, "-n", "200"
    )
    config = run / "CartPole-v1/config.yml"
    config.write_text(config.read_text().replace("rim_size: 4", "rim_size: 8"))
    assert "the checkpoint at 320 steps" in (text := says("--resume", run, "-n", "999")) and "does not fit" in text
    assert steps_of(run) == [256, 320]
    for path in (run / "checkpoints").glob("*.pt"):
        path.write_bytes(b"")
    assert "has no checkpoint that is whole" in says("--resume", run, "-n", "999")
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoint, so that nothing can be resumed" in says("--resume", run, "-n", "999")
    for name in ("0.monitor.csv", "policy.safetensors", "run.json"):
        assert (run / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize("room", [0, 120_000])  # for nothing, or for everything but a checkpoint
def test_a_full_disk_stops_training_and_nothing_is_lost(room, never_stopped, small_disk, tmp_path):
    whole = never_stopped("CartPole-v1")
    run = small_disk / "ppo" / whole.name
    process = launch(tmp_path / "log", *flags(*EXACT["CartPole-v1"]), "--logdir", small_disk)
    wait_until(lambda: len(steps_of(run)) > 1, process)
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while room == 0 or shutil.disk_usage(small_disk).free > room:
            file.write(bytes(4096))
    process.join()
    assert process.exitcode == 2
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log and "No space left on device" in log.splitlines()[-1]
    assert log.endswith(f"with rims-rl train --resume {run}\n")
    assert not list(run.rglob(".*.*")), "what was half-written is gone"
    filler.unlink()
    resume_run(run, None)
    assert outcome(run) == outcome(whole)


def test_evaluations_leave_training_as_it_is_and_the_end_says_where_the_run_stands(never_stopped, tmp_path, capsys):
    args, overrides = EXACT["Breakout"]
    settings, args = parse_overrides(overrides), args.model_dump() | {"eval_freq": 0}
    print_training(result := train(TrainOptions(**args, settings=settings, logdir=tmp_path)))
    run = result.folder
    assert not (run / "evaluations.npz").exists()
    assert (run / "policy.safetensors").read_bytes() == (never_stopped("Breakout") / "policy.safetensors").read_bytes()
    assert re.search(
        r"Breakout: mean score of the last \d+ episodes \d+ after 768 steps; "
        r"paper after 40,000,000 steps: RIMs [\d,]+, LSTM [\d,]+",
        capsys.readouterr().out,
    )
