"""``rims-rl evaluate``: play a saved policy for an exact number of episodes, and say how well it did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from rich.progress import Progress
from stable_baselines3.common.evaluation import evaluate_policy

from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import write_json
from rims_rl.common.statistics import summary
from rims_rl.core import weights_at_rest
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve, resolve_saved
from rims_rl.evaluation.drop_and_force import describe_interventions, intervene
from rims_rl.runs.provenance import provenance


def evaluate(
    run: Path,
    episodes: int,
    deterministic: bool | None,
    seed: int,
    n_envs: int,
    threads: int,
    out: Path | None,
    random: bool = False,
    trust: bool = False,
    drop: Sequence[int] = (),
    force: Sequence[int] = (),
    **env_options: Any,
) -> None:
    """Play ``run``'s policy, print mean, median and interval, and write them as JSON.

    With ``random``, ``run`` is the name of an environment, in which actions are drawn at random. The RIMs ``drop`` are
    taken out, ``force`` are always active. ``env_options``, see :func:`resolve`, are the run's unless they are given.
    """
    started = time.time()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    policy: Any
    if random:
        if deterministic is not None:
            raise UserError("--random plays random actions: leave out --deterministic and --stochastic")
        env, normalisation = resolve(run.as_posix(), **env_options), None
    else:
        policy, about = load_policy(run, trust=trust)
        env, normalisation = resolve_saved(about, **env_options), about.get("normalisation")
        if deterministic is None:
            deterministic = env.deterministic
    envs = make_envs(env, min(n_envs, episodes), seed, threads, clip_rewards=False)
    envs = with_statistics(envs, normalisation)
    if random:
        policy = _RandomActions(envs.action_space, seed)
    with Progress(transient=True) as progress, intervene(policy, run, drop, force), _at_rest(policy):
        bar = progress.add_task(f"{episodes} episodes of {env.name}", total=episodes)

        def report(local: dict[str, Any], _: Any) -> None:
            progress.update(bar, completed=len(local["episode_rewards"]))

        scores, lengths = evaluate_policy(
            policy, envs, episodes, bool(deterministic), callback=report, return_episode_rewards=True
        )
    result = {
        "run": "random" if random else run.name,
        "env": env._asdict(),
        "steps": None if random else about.get("steps"),
        "episodes": episodes,
        "deterministic": deterministic,
        "seed": seed,
        "drop": list(drop),
        "force": list(force),
        **summary(np.array(scores)),
        "scores": scores,
        "lengths": lengths,
        **provenance(started),
    }
    out = out or (Path(f"{env.name}_random.json") if random else result_path(run, drop, force))
    write_json(out, result)
    low, high = result["mean_95"]
    actions = "random" if random else "most likely" if deterministic else "sampled"
    Console(highlight=False).print(
        f"{env.name}: mean {result['mean']:.1f} (95 % interval {low:.1f} to {high:.1f}), "
        f"median {result['median']:.1f}, over {episodes} episodes, "
        f"{actions} actions{describe_interventions(drop, force)}\nwritten to {out}"
    )


def result_path(run: Path, drop: Sequence[int] = (), force: Sequence[int] = ()) -> Path:
    """Where the result goes by default: into the folder of the run, or beside the file of a policy."""
    changes = "".join(
        f"_{word}_{'_'.join(map(str, rims))}" for word, rims in (("drop", drop), ("force", force)) if rims
    )
    name = f"evaluation{changes}.json"
    return run / name if run.is_dir() else run.with_suffix(f".{name}")


def _at_rest(policy: Any) -> AbstractContextManager[None]:
    return nullcontext() if isinstance(policy, _RandomActions) else weights_at_rest(policy)


class _RandomActions:
    """Has the one method of a policy that evaluation calls."""

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        self._action_space = action_space
        action_space.seed(seed)

    def predict(self, observation: Any, episode_start: np.ndarray, **_: Any) -> tuple[np.ndarray, None]:
        return np.array([self._action_space.sample() for _ in episode_start]), None
