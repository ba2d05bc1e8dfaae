"""``rims-rl evaluate --drop each``: how well an agent does without each of its RIMs, as table, JSON and picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import write_json
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve_saved
from rims_rl.evaluation.drop_and_force import check_rims, intervene
from rims_rl.evaluation.evaluate_variants import draw_bars, with_interval
from rims_rl.evaluation.play_variants import describe_episodes, describe_run, play_episodes
from rims_rl.runs.provenance import provenance

WHAT = (
    "The policy played whole, and without each of its RIMs in turn: as if the layer had been built without it, its "
    "part of the state zero. Environments and sampled actions have the same seed every time. success_95: Wilson's "
    "score interval, return_95: percentile bootstrap of the mean, both over episodes. loss: how much success, or "
    "return where there is no success, is less than with all RIMs; loss_95: Newcombe's interval (method 10) of "
    "success, percentile bootstrap of return, both as if the episodes were independent."
)


def evaluate_each(
    run: Path,
    episodes: int,
    deterministic: bool | None,
    seed: int,
    n_envs: int,
    threads: int,
    out: Path | None,
    trust: bool = False,
    force: Sequence[int] = (),
    **env_options: Any,
) -> None:
    """Play ``run``'s policy ``episodes`` times whole and as often without each RIM; print and write what came out."""
    started = time.time()
    torch.set_num_threads(threads)
    policy, about = load_policy(run, trust=trust)
    check_rims(policy, run, "--drop each takes out")
    env = resolve_saved(about, **env_options)
    if deterministic is None:
        deterministic = env.deterministic
    out = out or (run / "drop_each.json" if run.is_dir() else run.with_suffix(".drop_each.json"))
    if out.suffix != ".json":
        raise UserError(f"--out must end in .json, and a .png will be beside it; got {out}")
    removals: dict[str, tuple[int, ...]] = {"none": (), **{str(k): (k,) for k in range(policy.num_rims)}}
    played: dict[str, Any] = {}
    with Progress(transient=True) as progress:
        total = len(removals) * episodes
        bar = progress.add_task(f"{total:,} episodes of {env.name}", total=total)
        for name, drop in removals.items():
            envs = make_envs(env, min(n_envs, episodes), seed, threads, clip_rewards=False)
            envs = with_statistics(envs, about.get("normalisation"))
            torch.manual_seed(seed)
            with intervene(policy, run, drop, force):
                played[name] = play_episodes(policy, envs, episodes, deterministic, lambda: progress.advance(bar))
            envs.close()
    removed = {name: describe_episodes(one, played["none"]) for name, one in played.items()}
    for one in removed.values():
        one |= {"loss": one.pop("drop"), "loss_95": one.pop("drop_95")}
    result = {
        "what": WHAT,
        **describe_run(run, policy, about),
        "env": env._asdict(),
        "force": list(force),
        "deterministic": deterministic,
        "evaluation_seed": seed,
        "n_envs": min(n_envs, episodes),
        "removed": removed,
        **provenance(started),
    }
    write_json(out, result)
    metric = "return" if removed["none"]["success"] is None else "success"
    actions = "most likely" if deterministic else "sampled"
    title = f"{env.name}, {episodes} episodes each, {actions} actions"
    table = Table("RIM taken out", f"{metric}, 95 %", "loss, 95 %", title=title)
    for name, one in removed.items():
        table.add_row(name, with_interval(one[metric], one[f"{metric}_95"]), with_interval(one["loss"], one["loss_95"]))
    console = Console(highlight=False)
    console.print(table)
    labels = {name: "all RIMs" if name == "none" else f"without {name}" for name in removed}
    cells = {labels[name]: (one[metric], one[f"{metric}_95"]) for name, one in removed.items()}
    draw_bars({"": cells}, metric, title, out)
    console.print(f"written to {out} and {out.with_suffix('.png')}", soft_wrap=True)
