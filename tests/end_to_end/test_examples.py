"""The files in examples/ run as a reader would run them, and do what they say."""

import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY_PPO = ("--total-steps", "512", "--num-envs", "4", "--num-steps", "64", "--epochs", "1")


def run(name, *arguments, cwd):
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def final_return(output):
    return float(re.search(r"Mean return of the last \d+ episodes: (\S+)", output).group(1))


def active_shares(output):
    return [int(percent) / 100 for percent in re.findall(r"RIM \d +(\d+)%", output)]


def test_single_file_ppo_runs_to_the_end_and_reports_return_and_activity(tmp_path):
    output = run("ppo_rims_single_file.py", *TINY_PPO, cwd=tmp_path)
    assert 8 < final_return(output) < 100  # what CartPole gives to an agent that has learned nothing
    assert sum(active_shares(output)) == pytest.approx(4, abs=0.04)  # 4 of 6, shares printed to a hundredth


def test_single_file_ppo_takes_another_task_with_its_whole_observation(tmp_path):
    output = run("ppo_rims_single_file.py", *TINY_PPO, "--env-id", "Acrobot-v1", "--visible", cwd=tmp_path)
    assert math.isnan(final_return(output))  # 128 steps in each environment: no episode of 500 has ended


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_single_file_ppo_learns_to_balance_without_velocities(tmp_path):
    assert final_return(run("ppo_rims_single_file.py", cwd=tmp_path)) >= 200


def test_copying_writes_its_figure(tmp_path):
    run("copying.py", "--seed", 1, "--budget", 2, "--out", tmp_path / "copying.png", cwd=tmp_path)
    assert (tmp_path / "copying.png").read_bytes().startswith(b"\x89PNG")


def test_the_variants_of_the_task_are_drawn(tmp_path):
    run("pickup_variants.py", "--out", tmp_path / "variants.png", cwd=tmp_path)
    assert (tmp_path / "variants.png").read_bytes().startswith(b"\x89PNG")


def test_episodes_of_the_recall_task_are_drawn(tmp_path):
    run("recall_episodes.py", "--out", tmp_path / "episodes.png", cwd=tmp_path)
    assert (tmp_path / "episodes.png").read_bytes().startswith(b"\x89PNG")


def test_the_distractors_of_an_atari_game_are_drawn(tmp_path):
    run("atari_distractors.py", "--out", tmp_path / "distractors.png", cwd=tmp_path)
    assert (tmp_path / "distractors.png").read_bytes().startswith(b"\x89PNG")


def test_what_supervised_tasks_show_is_drawn(tmp_path):
    run("supervised_pictures.py", "--out", tmp_path, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bouncing_clips.png", "adding_stream.png"}
    functions = runpy.run_path(str(EXAMPLES / "supervised_pictures.py"))  # MNIST itself need not be here
    images = torch.randint(256, (2, 28, 28), dtype=torch.uint8)
    assert len(functions["sides"](images[:1]).axes) == 4 and len(functions["moving"](images.numpy()).axes) == 11
