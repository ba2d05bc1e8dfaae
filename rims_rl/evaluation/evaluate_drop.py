"""How well an agent does without each of its RIMs, as JSON and picture."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import write_json
from rims_rl.common.words import count_of
from rims_rl.envs.make import make_envs
from rims_rl.envs.variants import endings_of
from rims_rl.evaluation.drop_and_force import check_rims, intervene
from rims_rl.evaluation.evaluate_variants import draw_bars
from rims_rl.evaluation.options import EvaluateOptions
from rims_rl.evaluation.play_variants import describe_episodes, describe_run, play_episodes
from rims_rl.runs.environment import resolve_saved
from rims_rl.runs.provenance import provenance

WHAT = (
    "The policy played whole, and without each of its RIMs in turn: as if the layer had been built without it, its "
    "part of the state zero. Environments and sampled actions have the same seed every time. success_95: Wilson's "
    "score interval, return_95: percentile bootstrap of the mean, both over episodes. loss: how much success, or "
    "return where there is no success, is less than with all RIMs; loss_95: Newcombe's interval (method 10) of "
    "success, percentile bootstrap of return, both as if the episodes were independent."
)


@dataclass(frozen=True)
class DropEachResult:
    """How well the policy did whole, ``"none"``, and without each of its RIMs, by number."""

    file: Path
    picture: Path
    title: str
    metric: str  # "success", or "return" where there is no success
    removed: dict[str, dict[str, Any]]


def evaluate_each(options: EvaluateOptions) -> DropEachResult:
    """Play a policy whole and as often without each RIM; ``drop`` of the options is not looked at."""
    started, run, episodes, seed = time.time(), options.run, options.episodes, options.seed
    if options.random:
        raise UserError("`random` plays random actions: leave out `drop` and `force`")
    torch.set_num_threads(options.threads)
    policy, description = load_policy(run, trust=options.trust)
    check_rims(policy, run, "`drop` takes out")
    env = resolve_saved(description, **options.given())
    deterministic = env.deterministic if options.deterministic is None else options.deterministic
    out = options.out or (run / "drop_each.json" if run.is_dir() else run.with_suffix(".drop_each.json"))
    if out.suffix != ".json":
        raise UserError(f"`out` must end in .json, and a .png will be beside it; got {out}")
    removals: dict[str, tuple[int, ...]] = {"none": (), **{str(k): (k,) for k in range(policy.num_rims)}}
    played: dict[str, Any] = {}
    with Progress(transient=True, disable=not options.progress) as progress:
        total = len(removals) * episodes
        bar = progress.add_task(f"{total:,} episodes of {env.name}", total=total)
        for name, drop in removals.items():
            envs = make_envs(env, min(options.n_envs, episodes), seed, options.threads, clip_rewards=False)
            envs = with_statistics(envs, description.normalization)
            torch.manual_seed(seed)
            with intervene(policy, run, drop, options.force):
                played[name] = play_episodes(policy, envs, episodes, deterministic, lambda: progress.advance(bar))
            envs.close()
    removed = {name: describe_episodes(one, played["none"], endings_of(env)) for name, one in played.items()}
    for one in removed.values():
        one |= {"loss": one.pop("drop"), "loss_95": one.pop("drop_95")}
    result = {
        "what": WHAT,
        **describe_run(run, policy, description),
        "env": env._asdict(),
        "force": list(options.force),
        "deterministic": deterministic,
        "evaluation_seed": seed,
        "n_envs": min(options.n_envs, episodes),
        "removed": removed,
        **provenance(started),
    }
    write_json(out, result)
    metric = "return" if removed["none"]["success"] is None else "success"
    actions = "most likely" if deterministic else "sampled"
    title = f"{env.name}, {count_of(episodes, 'episode')} each, {actions} actions"
    labels = {name: "all RIMs" if name == "none" else f"without {name}" for name in removed}
    cells = {labels[name]: (one[metric], one[f"{metric}_95"]) for name, one in removed.items()}
    return DropEachResult(out, draw_bars({"": cells}, metric, title, out), title, metric, removed)
