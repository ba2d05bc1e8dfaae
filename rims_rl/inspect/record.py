"""``rims-rl inspect``: play a saved policy, and record what its RIMs do at each step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import free_name
from rims_rl.envs.names import Resolved, resolve_saved
from rims_rl.envs.variants import choose_variants
from rims_rl.envs.watch import make_watched, own_speed
from rims_rl.evaluation.drop_and_force import check_rims, intervene
from rims_rl.evaluation.play_variants import check_observations, describe_run
from rims_rl.inspect.analysis import write_pictures
from rims_rl.inspect.inspection_page import write_page
from rims_rl.inspect.play import Step, describe, play
from rims_rl.inspect.recording import write_recording
from rims_rl.runs.provenance import provenance

FORMAT = 1


def inspect(
    run: Path,
    out: Path | None,
    html: Path | None,
    episodes: int,
    variant: str | None,
    max_steps: int | None,
    deterministic: bool | None,
    seed: int,
    threads: int,
    drop: Sequence[int] = (),
    force: Sequence[int] = (),
    pictures: Path | None = None,
    compare: Path | None = None,
) -> Path:
    """Play ``run``'s policy, and return the recording; with ``html``, also make a page of it.

    With ``pictures``, a folder, also pictures and statistics, in which the run ``compare`` is beside it, played in the
    same way. As in ``enjoy``, Atari games are played on Stable-Baselines3's wrappers, because only
    these show the game in colour. The same seed gives the same game here and there.
    """
    torch.set_num_threads(threads)
    for flag, path, suffix in (("--out", out, ".npz"), ("--html", html, ".html")):
        if path is not None and path.suffix != suffix:
            raise UserError(f"{flag} must end in {suffix}, got {path}")
    if compare is not None and pictures is None:
        raise UserError(f"--compare {compare} is shown in pictures: give --pictures FOLDER, too")
    console, made = Console(highlight=False), []
    for one in [run] if compare is None else [run, compare]:
        target = out if one is run and out else None
        made.append(_record(one, target, episodes, variant, max_steps, deterministic, seed, drop, force, console))
    if html is not None:
        write_page(made[0], html)
        console.print(f"the page, {_megabytes(html)}: {html}", soft_wrap=True)
    if pictures is not None:
        write_pictures(made, pictures)
        console.print(f"pictures and statistics.json: {pictures}", soft_wrap=True)
    return made[0]


def _record(
    run: Path,
    out: Path | None,
    episodes: int,
    variant: str | None,
    max_steps: int | None,
    deterministic: bool | None,
    seed: int,
    drop: Sequence[int],
    force: Sequence[int],
    console: Console,
) -> Path:
    started = time.time()
    torch.manual_seed(seed)
    policy, saved = load_policy(run)
    check_rims(policy, run, "inspect looks at")
    env = _choose(saved, variant)
    if deterministic is None:
        deterministic = env.deterministic
    out = out or free_name((run if run.is_dir() else run.parent) / "recordings", env.name, ".npz")
    envs = make_watched(env, seed)
    if variant is not None:
        check_observations(policy, envs, run, env)
    about = {
        "format": FORMAT,
        **describe_run(run, policy, saved),
        "env": env._asdict(),
        **describe(policy, envs, env),
        "fps": own_speed(envs, env),
        "deterministic": deterministic,
        "evaluation_seed": seed,
        "drop": list(drop),
        "force": list(force),
    }
    with intervene(policy, run, drop, force), write_recording(out, about) as recorder:

        def add(step: Step) -> None:
            values = step._asdict()
            del values["mission"]  # it is the same in a whole episode, and told there
            recorder.add(**values)

        steps, played = play(policy, envs, saved, env, episodes, max_steps, deterministic, console, add)
        about |= {"episodes": played, **provenance(started)}
    console.print(f"{steps:,} steps, {_megabytes(out)}: {out}", soft_wrap=True)
    return out


def _choose(saved: dict[str, Any], variant: str | None) -> Resolved:
    """The environment to play in."""
    env = resolve_saved(saved, backend="sb3" if resolve_saved(saved).rom else None)
    if variant is None:
        return env
    if variant == "all":
        raise UserError("--variant takes one variant, such as known, got 'all'")
    return choose_variants(env, [variant])[variant]


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"
