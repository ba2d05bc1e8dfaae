"""Killed inside file operations, at any of them: nothing is lost, and what comes out is the same to the bit."""

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import resume_run, train_run

pytestmark = pytest.mark.slow

PROCESSES = multiprocessing.get_context("forkserver")  # real ones, which need no seconds to import torch
PROCESSES.set_forkserver_preload(["rims_rl.training.train", "torch._dynamo"])

SETTINGS = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=16", "batch_size=32", "n_epochs=1"]
OPERATIONS = ("fsync", "replace", "rename", "unlink", "truncate", "mkdir")
ARGUMENTS = Arguments(
    env="CartPole-v1", eval_freq=64, eval_episodes=1, checkpoint_freq=64, exact_resume=True, keep_policies_every=96
)


def work(logdir, run, kill_at, after):
    """Train, or go on, and be killed before or after the file operation with this number; the number of them if none
    was killed."""
    count = 0

    def watched(operation):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == kill_at and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = operation(*args, **kwargs)
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in OPERATIONS:
        setattr(os, name, watched(getattr(os, name)))
    if run is None:
        train_run(ARGUMENTS, [*SETTINGS, "n_timesteps=256"], Path(logdir))
    else:
        try:
            resume_run(Path(run), None)
        except UserError as error:
            assert "has finished" in str(error)
    (Path(logdir) / "operations").write_text(str(count))


def start(logdir, run, kill_at=0, after=False):
    process = PROCESSES.Process(target=work, args=(str(logdir), run and str(run), kill_at, after))
    process.start()
    process.join()
    return process.exitcode


def outcome(run):
    files = ("policy.safetensors", "best/policy.safetensors", "policies/96/policy.safetensors", "evaluations.npz")
    scores = [line.rsplit(",", 1)[0] for line in (run / "0.monitor.csv").read_text().splitlines()[1:]]
    return [(run / name).read_bytes() for name in files], scores


def test_a_run_killed_in_any_file_operation_goes_on_to_the_same_end(tmp_path):
    assert start(tmp_path / "whole", None) == 0
    whole = outcome(tmp_path / "whole/ppo/CartPole-v1_1")
    operations = int((tmp_path / "whole/operations").read_text())
    assert operations > 30, "they are watched"
    generator, compared = random.Random(0), 0
    for attempt in range(16):
        logdir = tmp_path / str(attempt)
        run, code, kills = logdir / "ppo/CartPole-v1_1", None, 0
        while code != 0:
            begun = list(run.glob("checkpoints/[0-9]*.pt"))
            if not begun and run.exists():
                break  # killed before there was anything to go on from
            code = start(logdir, run if begun else None, generator.randrange(1, operations), generator.random() < 0.5)
            kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), code
            if begun:
                load_policy(run)  # whatever was killed when, there is a policy that plays
        else:
            assert outcome(run) == whole, f"attempt {attempt}, after {kills} kills"
            assert not list(run.rglob(".*@*")), "what was half-written is gone"
            compared += 1
    assert compared > 8
