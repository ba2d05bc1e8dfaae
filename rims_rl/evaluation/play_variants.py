"""One frozen policy in every variant of its environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.agents.policies.action_masks import with_masks
from rims_rl.agents.saved.description import Description
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.statistics import mean_difference, rate_difference, summary, wilson
from rims_rl.core import weights_at_rest
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import Resolved
from rims_rl.envs.variants import choose_variants, endings_of, is_novel, settings_of, variants_of
from rims_rl.evaluation.options import VariantsOptions
from rims_rl.runs.environment import resolve_saved


def play_variants(run: Path, options: VariantsOptions, report: Callable[[], None] | None = None) -> dict[str, Any]:
    """Play one of the runs in each of the variants; the result is ready for JSON.

    Environments and sampled actions get the same ``seed`` in every variant and for every policy: as long as ``n_envs``
    is the same too, policies meet the same rooms, or games that start alike. ``report`` is called after each episode.
    """
    torch.set_num_threads(options.threads)
    policy, description = load_policy(run, trust=options.trust)
    trained = resolve_saved(description)
    chosen = choose_variants(trained, options.variants)
    deterministic = trained.deterministic if options.deterministic is None else options.deterministic
    seed, episodes, n_envs = options.seed, options.episodes, min(options.n_envs, options.episodes)
    reference = next(name for name, env in variants_of(trained).items() if env == trained)
    settings, played = {}, {}
    for name, env in chosen.items():
        envs = make_envs(env, n_envs, seed, options.threads, clip_rewards=False)
        envs = with_statistics(envs, description.normalization)
        check_observations(policy, envs, run, env)
        torch.manual_seed(seed)
        played[name] = play_episodes(policy, envs, episodes, deterministic, report)
        settings[name] = settings_of(env, envs)  # known after a reset
        envs.close()
    return {
        **describe_run(run, policy, description),
        "reference": reference,
        "deterministic": deterministic,
        "evaluation_seed": seed,
        "n_envs": n_envs,
        "variants": {
            name: {"env": settings[name], **describe_episodes(one, played.get(reference), endings_of(trained))}
            for name, one in played.items()
        },
        "notes": _notes(trained, chosen),
    }


def describe_run(run: Path, policy: Any, description: Description) -> dict[str, Any]:
    """Which run it is, for result files: without the folders of this machine."""
    return {
        "run": "/".join(run.resolve().parts[-3:]),
        "env": resolve_saved(description)._asdict(),
        "core": description.policy_kwargs.core,
        "algo": description.algo,
        "seed": description.seed,
        "steps": description.steps,
        "parameters": sum(parameter.numel() for parameter in policy.parameters()),
        "policy_kwargs": description.given_policy_kwargs(),
    }


def check_observations(policy: Any, envs: VecEnv, run: Path, env: Resolved) -> None:
    """Refuse to play a policy where observations have another form than it was trained on."""
    if policy.observation_space != envs.observation_space:
        raise UserError(
            f"{run} was trained on observations of the form {_shapes(policy.observation_space)}, and {env.name} gives "
            f"{_shapes(envs.observation_space)}; it cannot be played in this form, only trained again"
        )


class Episodes(NamedTuple):
    """What came out of some episodes."""

    returns: np.ndarray
    lengths: np.ndarray
    successes: list[bool]  # empty where an environment knows no success
    outcomes: list[str]  # likewise

    def rate(self, outcome: str, endings: Sequence[str]) -> float | None:
        """How often episodes ended like this; None where they never do, since it is not one of ``endings``."""
        return self.outcomes.count(outcome) / len(self.returns) if outcome in endings else None


def play_episodes(
    policy: Any, envs: VecEnv, episodes: int, deterministic: bool, report: Callable[[], None] | None
) -> Episodes:
    """Exactly ``episodes``, as many in each environment, so that short ones do not count more than long ones."""
    ends: list[dict[str, Any]] = []

    def collect(local: dict[str, Any], _: Any) -> None:
        if "episode" in local["info"]:
            ends.append(local["info"])
            if report is not None:
                report()

    with weights_at_rest(policy):
        returns, lengths = evaluate_policy(
            with_masks(policy, envs), envs, episodes, deterministic, callback=collect, return_episode_rewards=True
        )
    assert len(ends) == episodes
    return Episodes(
        np.array(returns),
        np.array(lengths),
        [bool(end["is_success"]) for end in ends if "is_success" in end],
        [end["outcome"] for end in ends if "outcome" in end],
    )


def describe_episodes(one: Episodes, reference: Episodes | None, endings: Sequence[str]) -> dict[str, Any]:
    """Rates, means and intervals. The drop is in success, or in return where there is no success."""
    episodes, successes = len(one.returns), sum(one.successes)
    returns = summary(one.returns)
    result = {
        "episodes": episodes,
        "success": None,
        "success_95": None,
        "wrong_pick": one.rate("wrong pick", endings),
        "time_out": one.rate("time-out", endings),
        "return": returns["mean"],
        "return_95": returns["mean_95"],
        "length": float(one.lengths.mean()),
        "drop": None,
        "drop_95": None,
    }
    if one.successes:
        result |= {"success": successes / episodes, "success_95": wilson(successes, episodes)}
    if reference is not None and reference is not one:
        if one.successes:
            before = sum(reference.successes), len(reference.successes)
            drop, drop_95 = before[0] / before[1] - successes / episodes, rate_difference(*before, successes, episodes)
        else:
            drop = float(reference.returns.mean() - one.returns.mean())
            drop_95 = mean_difference(reference.returns, one.returns)
        result |= {"drop": drop, "drop_95": drop_95}
    return result


def _shapes(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return ", ".join(f"{key} {part.shape}" for key, part in space.spaces.items())
    return str(space.shape)


def _notes(trained: Resolved, chosen: dict[str, Resolved]) -> list[str]:
    if trained.family == "recall" and (novel := [name for name in chosen if is_novel(name)]):
        return [f"{' and '.join(novel)}: weights of the numbers that are their tokens were never trained"]
    new = [name for name in chosen if name.startswith("new-")]
    if trained.observation != "symbolic" or not new:
        return []
    return [
        f"{' and '.join(new)}: in symbolic form these have codes whose weights were never trained; "
        "a run with observation=rgb sees them as pixels"
    ]
