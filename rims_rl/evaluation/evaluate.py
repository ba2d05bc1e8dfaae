"""Play a saved policy for an exact number of episodes, and say how well it did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.progress import Progress
from stable_baselines3.common.evaluation import evaluate_policy

from rims_rl.agents.policies.action_masks import with_masks
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import check_writable
from rims_rl.common.statistics import summary
from rims_rl.common.words import count_of
from rims_rl.core import weights_at_rest
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.evaluation.drop_and_force import intervene
from rims_rl.evaluation.options import EvaluateOptions
from rims_rl.runs.environment import resolve_saved
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import EvaluationResult, write_record

__all__ = ["EvaluateOptions", "EvaluationResult", "evaluate", "result_path"]


def evaluate(options: EvaluateOptions) -> EvaluationResult:
    """Play a policy, write how well it did as JSON, and return it."""
    started, run, episodes, random = time.time(), options.run, options.episodes, options.random
    if options.out is not None:
        check_writable(options.out)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    deterministic, steps, normalization = options.deterministic, None, None
    policy: Any = None
    if random:
        if deterministic is not None:
            raise UserError("`random` plays random actions: leave out `deterministic`")
        if options.drop or options.force:
            raise UserError("`random` plays random actions: leave out `drop` and `force`")
        env = resolve(run.as_posix(), **options.given())
    else:
        _check_there(run)
        policy, description = load_policy(run, trust=options.trust)
        env, steps = resolve_saved(description, **options.given()), description.steps
        normalization = description.normalization
        if deterministic is None:
            deterministic = env.deterministic
    with intervene(policy, run, options.drop, options.force):  # which checks these, before games are made
        envs = make_envs(env, min(options.n_envs, episodes), options.seed, options.threads, clip_rewards=False)
        envs = with_statistics(envs, normalization)
        if random:
            policy = _RandomActions(envs.action_space, options.seed)
        with Progress(transient=True, disable=not options.progress) as progress, _at_rest(policy):
            bar = progress.add_task(f"{count_of(episodes, 'episode')} of {env.name}", total=episodes)

            def report(local: dict[str, Any], _: Any) -> None:
                progress.update(bar, completed=len(local["episode_rewards"]))

            scores, lengths = evaluate_policy(
                with_masks(policy, envs), envs, episodes, bool(deterministic), callback=report,
                return_episode_rewards=True,
            )  # fmt: skip
    assert isinstance(scores, list) and isinstance(lengths, list)
    out = options.out or (Path(f"{env.name}_random.json") if random else result_path(run, options.drop, options.force))
    result = EvaluationResult(
        run="random" if random else run.name,
        env=env._asdict(),
        steps=steps,
        episodes=episodes,
        deterministic=deterministic,
        seed=options.seed,
        drop=list(options.drop),
        force=list(options.force),
        **summary(np.array(scores)),
        scores=scores,
        lengths=lengths,
        **provenance(started),
        file=out,
    )
    write_record(out, result)
    return result


def _check_there(run: Path) -> None:
    if run.exists():
        return
    try:
        resolve(run.as_posix())
    except UserError:
        raise UserError(f"there is no file or folder {run}; give the folder of a run, such as logs/ppo/...") from None
    raise UserError(f"{run} is an environment, and not the folder of a run; `random` plays it with random actions")


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

    def predict(
        self, observation: Any, episode_start: np.ndarray, action_masks: np.ndarray | None = None, **_: Any
    ) -> tuple[np.ndarray, None]:
        space: Any = self._action_space
        if action_masks is None:
            return np.array([space.sample() for _ in episode_start]), None
        masks = action_masks.astype(np.int8)
        if isinstance(space, spaces.MultiDiscrete):
            cuts = np.cumsum(space.nvec)[:-1]
            return np.array([space.sample(mask=tuple(np.split(mask, cuts))) for mask in masks]), None
        return np.array([space.sample(mask=mask) for mask in masks]), None
