"""``rims-rl evaluate``: play a saved policy for an exact number of episodes, and say how well it did."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from stable_baselines3.common.evaluation import evaluate_policy

from rims_rl.agents.portable import load_policy
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.envs.normalise import with_statistics
from rims_rl.errors import UserError
from rims_rl.results import provenance, write_json


def evaluate(
    run: Path, episodes: int, deterministic: bool | None, seed: int, n_envs: int, threads: int, out: Path | None
) -> None:
    """Play ``run``'s policy, print mean, median and interval, and write them as JSON."""
    started = time.time()
    torch.set_num_threads(threads)
    policy, about = load_policy(run)
    if "env" not in about:
        raise UserError(f"{run / 'policy.json'} does not say which environment the policy was trained on")
    env = resolve(about["env"])
    if deterministic is None:
        deterministic = env.rom is None  # sampled actions on Atari, as rl_zoo3 does
    torch.manual_seed(seed)
    envs = make_envs(env, min(n_envs, episodes), seed, threads, clip_rewards=False)
    envs = with_statistics(envs, about.get("normalisation"))
    with Progress(transient=True) as progress:
        bar = progress.add_task(f"{episodes} episodes of {env.name}", total=episodes)

        def report(local: dict[str, Any], _: Any) -> None:
            progress.update(bar, completed=len(local["episode_rewards"]))

        scores, lengths = evaluate_policy(
            policy, envs, episodes, deterministic, callback=report, return_episode_rewards=True
        )
    result = {
        "run": run.name,
        "env": env._asdict(),
        "episodes": episodes,
        "deterministic": deterministic,
        "seed": seed,
        **summary(np.array(scores)),
        "scores": scores,
        "lengths": lengths,
        **provenance(started),
    }
    out = out or run / "evaluation.json"
    write_json(out, result)
    low, high = result["mean_95"]
    Console(highlight=False).print(
        f"{env.name}: mean {result['mean']:.1f} (95 % interval {low:.1f} to {high:.1f}), "
        f"median {result['median']:.1f}, over {episodes} episodes, "
        f"{'most likely' if deterministic else 'sampled'} actions\nwritten to {out}"
    )


def summary(scores: np.ndarray, resamples: int = 10_000) -> dict[str, Any]:
    """Mean with a 95 % bootstrap interval, median, and standard deviation."""
    draws = np.random.default_rng(0).choice(scores, (resamples, len(scores)))
    low, high = np.percentile(draws.mean(1), [2.5, 97.5])
    return {
        "mean": float(scores.mean()),
        "mean_95": [float(low), float(high)],
        "median": float(np.median(scores)),
        "std": float(scores.std()),
    }
