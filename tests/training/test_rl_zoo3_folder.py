"""With plain rl_zoo3: it trains our policy by dotted path, and its enjoy plays that and what ``rims-rl train`` left."""

import os
import subprocess
import sys

import numpy as np
import pytest
import sb3_contrib

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import train_run

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=32", "n_timesteps=128"]


def zoo(command, *arguments, cwd, env="CartPole-v1"):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
    run = [sys.executable, "-m", f"rl_zoo3.{command}", "--algo", "ppo_lstm", "--env", env, *arguments]
    result = subprocess.run(run, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_rl_zoo3_trains_our_policy_and_replays_it(tmp_path):
    (tmp_path / "ppo_lstm.yml").write_text(
        "CartPole-v1:\n  n_timesteps: 512\n  policy: rims_rl.MlpRimsPolicy\n  n_envs: 2\n  n_steps: 32\n"
        "  batch_size: 32\n  n_epochs: 1\n  policy_kwargs: 'dict(num_rims=4, num_active=2, rim_size=8)'\n"
    )
    output = zoo("train", "-conf", "ppo_lstm.yml", "-f", "logs", "--eval-freq", "-1", cwd=tmp_path)
    assert "Saving to logs" in output
    zoo("enjoy", "-f", "logs", "-n", "50", "--no-render", cwd=tmp_path)


def test_the_policy_can_be_named_on_the_command_line(tmp_path):
    zoo(
        "train", "-n", "256", "-f", "logs", "--eval-freq", "-1",
        "-params", "policy:'rims_rl.MlpRimsPolicy'", "n_envs:1", "normalize:False",
        "policy_kwargs:dict(num_rims=4,num_active=2,rim_size=8)", cwd=tmp_path,
    )  # fmt: skip
    assert list((tmp_path / "logs").rglob("CartPole-v1.zip"))


def run_training(tmp_path, *overrides, eval_freq=0, **arguments):
    arguments = Arguments(device="cpu", eval_freq=eval_freq, eval_episodes=1, **arguments)
    return train_run(arguments, [*SMALL, *overrides], tmp_path / "logs")


def test_rl_zoo3_plays_the_last_and_the_best_policy_of_a_run(tmp_path):
    sizes = ["batch_size=32", "n_epochs=1", "learning_rate=0.01", "normalize=true"]
    run = run_training(tmp_path, *sizes, env="CartPole-v1", eval_freq=64)
    for file, folder, option in (("CartPole-v1", run, "--verbose=1"), ("best_model", run / "best", "--load-best")):
        output = zoo("enjoy", "-f", str(run), "-n", "200", "--no-render", option, cwd=tmp_path)
        assert f"ppo_lstm/{file}.zip" in output and "Loading running average" in output and "Mean reward" in output
        played, ours = sb3_contrib.RecurrentPPO.load(run / f"ppo_lstm/{file}.zip"), load_policy(folder)[0]
        assert type(played) is sb3_contrib.RecurrentPPO
        observation = np.ones((1, 4), np.float32)
        np.testing.assert_array_equal(played.predict(observation)[1], ours.predict(observation)[1])


def test_a_core_that_our_files_may_not_import_is_there_for_rl_zoo3(tmp_path):
    """Training must not end in an error because of it."""
    core = "core=rims_rl.core.memories.baselines.GRU"
    run = run_training(tmp_path, "batch_size=32", core, env="CartPole-v1", eval_freq=64)
    for file in ("CartPole-v1", "best_model"):
        policy = sb3_contrib.RecurrentPPO.load(run / f"ppo_lstm/{file}.zip").policy
        assert type(policy.core).__name__ == "GRU"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ALE/Breakout-v5", {"env": "Breakout", "distractors": "known"}),
        ("RimsRL/Pickup-Known-v0", {"env": "PickupKnown"}),
        ("Pendulum-v1", {"env": "Pendulum-v1", "algo": "a2c"}),
    ],
)
def test_rl_zoo3_plays_runs_of_every_kind(name, options, tmp_path):
    sizes = [] if options.get("algo") == "a2c" else ["batch_size=32", "n_epochs=1"]
    run = run_training(tmp_path, *sizes, **options)
    ours = ["--gym-packages", "rims_rl.envs"]  # or Gymnasium does not know RimsRL/...
    output = zoo("enjoy", "-f", str(run), "-n", "200", "--no-render", *ours, cwd=tmp_path, env=name)
    assert f"{name.replace('/', '-')}.zip" in output
