"""Trainings side by side: what is grouped, what is compared at which step, and whose files are read."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.image import imread
from stable_baselines3.common.env_util import make_vec_env

from rims_rl.evaluation.compare_training import compare_training
from rims_rl.evaluation.options import CompareOptions
from rims_rl.evaluation.trained_runs import read_trained_run
from rims_rl.runs.folder import Arguments
from rims_rl.runs.monitor_files import monitor_files, read_episodes
from tests.helpers.verbs import train_run, user_error

TINY = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=512", "n_envs=2", "n_steps=64", "batch_size=128"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two cores with two seeds, and the first once more with another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [("rims", 0, []), ("rims", 1, []), ("lstm", 0, []), ("lstm", 1, []), ("rims", 0, ["learning_rate=1e-2"])]
    return [
        train_run(
            Arguments(env="CartPole-v1", seed=seed, eval_freq=256, eval_episodes=2),
            [*TINY, f"core={core}", *more],
            folder,
        )
        for core, seed, more in settings
    ]


def monitored(folder, steps, count=2):
    """What Stable-Baselines3's Monitor writes while actions are drawn at random."""
    envs = make_vec_env("CartPole-v1", count, seed=0, monitor_dir=str(folder))
    envs.action_space.seed(0)
    envs.reset()
    for _ in range(steps // count):
        envs.step(np.array([envs.action_space.sample() for _ in range(count)]))
    envs.close()
    return folder


def compared(folder, *runs):
    return compare_training(CompareOptions(runs=list(runs), out=folder / "out.json")).data


def test_seeds_of_one_setting_are_a_group_and_a_label_says_what_differs(runs, tmp_path):
    data = compared(tmp_path, *runs)
    groups = data["envs"]["CartPole-v1"]["groups"]
    assert {label: group["seeds"] for label, group in groups.items()} == {
        "rims, learning_rate=lin_7e-4": [0, 1],
        "lstm": [0, 1],
        "rims, learning_rate=0.01": [0],
    }
    assert data == json.loads((tmp_path / "out.json").read_text())
    assert imread(tmp_path / "out.png").std() > 0.05  # something is drawn


def test_runs_with_other_options_of_the_environment_are_not_compared_with_each_other(runs, tmp_path):
    options = ({"env_kwargs": {"max_episode_steps": 50}}, {"env_kwargs": {"max_episode_steps": 60}}, {"frame_stack": 2},
               {"env_wrapper": ["gymnasium.wrappers.NormalizeReward"]})  # fmt: skip
    others = [
        train_run(Arguments(env="CartPole-v1", eval_freq=0, **each), [*TINY, "core=rims"], tmp_path) for each in options
    ]
    envs = compared(tmp_path, runs[0], *others)["envs"]
    assert set(envs) == {
        "CartPole-v1",
        "CartPole-v1 (env_kwargs.max_episode_steps=50)",
        "CartPole-v1 (env_kwargs.max_episode_steps=60)",
        "CartPole-v1 (frame_stack=2)",
        "CartPole-v1 (env_wrapper=['gymnasium.wrappers.NormalizeReward'])",
    }
    assert all(list(env["groups"]) == ["rims"] and env["groups"]["rims"]["seeds"] == [0] for env in envs.values())


def test_a_run_is_as_long_as_it_says_wherever_its_last_episode_ended(runs, tmp_path):
    run = shutil.copytree(runs[0], tmp_path / "run")
    record = json.loads((run / "run.json").read_text()) | {"steps": 1001}
    (run / "run.json").write_text(json.dumps(record))
    (run / "0.monitor.csv").write_text("#{}\nr,l,t\n1,300,1\n1,200,2\n")
    assert 500 * (1001 / 500) < 1001  # rounding
    assert read_trained_run(run).episodes.ends[-1] == 1001


def test_scores_are_those_of_the_files_and_have_intervals_over_seeds(runs, tmp_path):
    group = compared(tmp_path, *runs[:2])["envs"]["CartPole-v1"]["groups"]["rims"]
    for run, score, evaluated in zip(runs, group["final"]["of_seeds"], group["evaluation"]["of_seeds"], strict=False):
        scores, lengths = np.loadtxt(run / "0.monitor.csv", delimiter=",", skiprows=2, usecols=(0, 1), unpack=True)
        ends = np.cumsum(lengths)
        assert score == pytest.approx(scores[ends > 0.9 * ends[-1]].mean())
        assert evaluated == np.load(run / "evaluations.npz")["results"][-1].mean()
    low, high = group["final"]["iqm_95"]
    assert low <= group["final"]["iqm"] <= high and group["steps"] == [512, 512]


def test_a_single_seed_has_no_interval(runs, tmp_path):
    group = compared(tmp_path, runs[0])["envs"]["CartPole-v1"]["groups"]["rims"]
    assert group["final"]["iqm_95"] is None and group["curve"]


def test_what_is_longer_is_compared_where_the_shortest_ends(tmp_path):
    short, long = monitored(tmp_path / "short_1", 200), monitored(tmp_path / "long_1", 2000)
    data = compared(tmp_path, short, long)
    (env,) = data["envs"].values()
    steps, episodes = env["steps"], read_episodes(monitor_files(long))
    assert steps == read_episodes(monitor_files(short)).ends[-1] and "where the shortest run ends" in data["notes"][0]
    there = (episodes.ends <= steps) & (episodes.ends > 0.9 * steps)
    assert env["groups"]["long"]["final"]["of_seeds"] == [episodes.scores[there].mean()]


def test_monitor_files_of_several_environments_are_one_training_in_the_order_of_time(tmp_path):
    run = monitored(tmp_path / "ppo_7", 600, count=3)
    episodes = read_episodes(monitor_files(run))
    assert len(monitor_files(run)) == 3 and (np.diff(episodes.seconds) >= 0).all() and episodes.ends[-1] <= 600
    group = compared(tmp_path, run)["envs"]["CartPole-v1"]["groups"]["ppo"]
    assert group["seeds"] == [7] and group["algo"] is None
    assert compared(tmp_path, run / "0.monitor.csv")["envs"]["CartPole-v1"]["groups"]["ppo"]["seeds"] == [7]


def test_runs_of_rl_zoo3_are_read_without_making_what_their_files_name(runs, tmp_path):
    command = [
        sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo_lstm", "--env", "CartPole-v1", "-n", "256", "--seed", "3",
        "-f", "logs", "--eval-freq", "128", "-params", "policy:'MlpLstmPolicy'", "n_envs:2", "n_steps:64",
    ]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    run = tmp_path / "logs/ppo_lstm/CartPole-v1_1"
    arguments = run / "CartPole-v1/args.yml"
    assert "!!python/object" in arguments.read_text()
    evil = f"- - x\n    - !!python/object/apply:os.mkdir [{tmp_path / 'made'}]\n"
    arguments.write_text(arguments.read_text().replace("- - seed\n", evil + "  - - seed\n"))
    groups = compared(tmp_path, run, runs[0])["envs"]["CartPole-v1"]["groups"]
    assert list(groups) == ["MlpLstmPolicy, ppo_lstm", "rims, ppo"]
    assert groups["MlpLstmPolicy, ppo_lstm"]["seeds"] == [3] and groups["MlpLstmPolicy, ppo_lstm"]["evaluation"]
    assert not (tmp_path / "made").exists()


def test_mistakes_are_one_sentence(runs, tmp_path):
    with user_error("nothere does not exist; give the folder of a run"):
        compared(tmp_path, tmp_path / "nothere")
    with user_error("holds no monitor.csv"):
        compared(tmp_path, tmp_path)
    with user_error("both are seed 0 of rims; each seed counts once"):
        compared(tmp_path, runs[0], runs[0])
    with user_error("--out must end in .json"):
        compare_training(CompareOptions(runs=[runs[0]], out=tmp_path / "x.png"))
    (tmp_path / "monitor.csv").write_text("#{}\nr,l,t\n1,x,2\n")
    with user_error("monitor.csv is damaged .*; remove the lines that are not r,l,t"):
        compared(tmp_path, tmp_path)
