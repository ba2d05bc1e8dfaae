"""From plain rl_zoo3, by dotted path: it trains, and its enjoy replays."""

import os
import subprocess
import sys


def zoo(command, *arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
    run = [sys.executable, "-m", f"rl_zoo3.{command}", "--algo", "ppo_lstm", "--env", "CartPole-v1", *arguments]
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
