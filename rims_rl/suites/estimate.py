"""``rims-rl suite run --dry-run``: the jobs, and how long they would take, from a short measurement."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from rims_rl.envs.names import resolve
from rims_rl.suites.job import arguments_of, settings_of
from rims_rl.suites.plan import Job, Plan
from rims_rl.suites.storage import finished
from rims_rl.training.train import build

SECONDS = 2.0  # of training, at least, after one rollout and update to warm up


def print_estimate(plan: Plan, results: Path, jobs: int | None, threads: int) -> None:
    """List the jobs. Each distinct setting is trained for a moment, one Atari game for all of them."""
    done = finished(results)
    left = [job for job in plan.jobs if job.hash not in done]
    distinct = {_kind(job): job for job in reversed(left)}  # the first of each kind
    speeds = {kind: _speed(job, threads) for kind, job in track(distinct.items(), "measuring", transient=True)}
    table = Table("job", "state", "steps/s", "time", title=plan.suite.title)
    total = 0.0
    for job in plan.jobs:
        if job.hash in done:
            table.add_row(Text(job.name), "finished", "", "")
            continue
        speed = speeds[_kind(job)]
        total += job.steps / speed
        table.add_row(Text(job.name), "to do", f"{speed:,.0f}", _duration(job.steps / speed))
    side_by_side = jobs or max(1, (os.cpu_count() or 1) // threads)
    console = Console(highlight=False)
    console.print(table)
    one_for_all = ", one game for all" if any(kind[0] == "atari" for kind in speeds) else ""
    console.print(
        f"{len(plan.jobs) - len(left)} of {len(plan.jobs)} jobs are finished. The others take {_duration(total)} of "
        f"training, {_duration(total / side_by_side)} with {side_by_side} side by side, without evaluations; measured "
        f"for a few seconds each, one at a time{one_for_all}"
    )


def _kind(job: Job) -> tuple[str, str, str, bool]:
    """Jobs of one kind are as fast as each other: on Atari, most time goes into the networks and not into the game."""
    env, algo, core = job.group
    return "atari" if resolve(job.env).family == "atari" else env, algo, core, job.source is not None


def _speed(job: Job, threads: int) -> float:
    """Steps per second."""
    model, evaluation_envs = build(arguments_of(job, threads), settings_of(job))
    rollout = model.n_steps * model.n_envs
    model.learn(rollout)
    begun, first = time.perf_counter(), model.num_timesteps
    while time.perf_counter() - begun < SECONDS:
        model.learn(rollout, reset_num_timesteps=False)
    speed = (model.num_timesteps - first) / (time.perf_counter() - begun)
    evaluation_envs.close()
    assert model.env is not None
    model.env.close()
    return speed


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
