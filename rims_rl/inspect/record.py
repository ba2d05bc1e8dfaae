"""Play a saved policy, and record what its RIMs do at each step."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import torch

from rims_rl.agents.saved.description import Description
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import check_writable, free_name
from rims_rl.envs.names import Resolved
from rims_rl.envs.variants import choose_variants
from rims_rl.envs.watch import is_shown, make_watched, own_speed
from rims_rl.evaluation.drop_and_force import check_rims, intervene
from rims_rl.evaluation.play_variants import check_observations, describe_run
from rims_rl.inspect.analysis import write_pictures
from rims_rl.inspect.inspection_page import write_page
from rims_rl.inspect.options import InspectOptions, InspectResult, Recording
from rims_rl.inspect.play import Step, describe, play
from rims_rl.inspect.recording import write_recording
from rims_rl.runs.environment import resolve_saved
from rims_rl.runs.provenance import provenance

__all__ = ["InspectOptions", "InspectResult", "Recording", "inspect"]

FORMAT = 1
log = logging.getLogger(__name__)


def inspect(options: InspectOptions) -> InspectResult:
    """Play a policy, and record it; with ``html``, also make a page, and with ``pictures``, pictures and statistics.

    As in ``enjoy``, Atari games are played on Stable-Baselines3's wrappers, because only these show the game in colour.
    The same seed gives the same game here and there.
    """
    torch.set_num_threads(options.threads)
    for name, path, suffix in (("out", options.out, ".npz"), ("html", options.html, ".html")):
        if path is not None and path.suffix != suffix:
            raise UserError(f"`{name}` must end in {suffix}, got {path}")
    for path in (options.out, options.html, options.pictures and options.pictures / "statistics.json"):
        if path is not None:
            check_writable(path)
    if options.compare is not None and options.pictures is None:
        raise UserError(f"`compare` {options.compare} is shown in pictures: give `pictures` FOLDER, too")
    recordings = [_record(options.run, options.out, options)]
    if options.compare is not None:
        recordings.append(_record(options.compare, None, options))
    if options.html is not None:
        write_page(recordings[0].file, options.html)
    if options.pictures is not None:
        write_pictures([recording.file for recording in recordings], options.pictures)
    return InspectResult(recordings, options.html, options.pictures)


def _record(run: Path, out: Path | None, options: InspectOptions) -> Recording:
    started = time.time()
    torch.manual_seed(options.seed)
    policy, description = load_policy(run, trust=options.trust)
    check_rims(policy, run, "inspect looks at")
    env = _choose(description, options.variant)
    out = out or free_name((run if run.is_dir() else run.parent) / "recordings", env.name, ".npz")
    with intervene(policy, run, options.drop, options.force):
        pass  # what is wrong with these is said before the game is made
    envs = make_watched(env, options.seed, must_show=False)
    if not is_shown(envs):
        log.info(f"{env.id} has no render_mode rgb_array: what the agent observes is recorded instead of pictures")
    if options.variant is not None:
        check_observations(policy, envs, run, env)
    header = {
        "format": FORMAT,
        **describe_run(run, policy, description),
        "env": env._asdict(),
        **describe(policy, envs, env),
        "fps": own_speed(envs, env),
        "deterministic": env.deterministic if options.deterministic is None else options.deterministic,
        "evaluation_seed": options.seed,
        "drop": list(options.drop),
        "force": list(options.force),
    }
    with intervene(policy, run, options.drop, options.force), write_recording(out, header) as recorder:

        def add(step: Step) -> None:
            values = step._asdict()
            del values["mission"]  # it is the same in a whole episode, whose record has it
            recorder.add(**values)

        steps, episodes = play(policy, envs, description.normalization, env, options, add)
        header |= {"episodes": episodes, **provenance(started)}
    return Recording(out, steps, episodes)


def _choose(description: Description, variant: str | None) -> Resolved:
    """The environment to play in."""
    env = resolve_saved(description, backend="sb3" if resolve_saved(description).rom else None)
    if variant is None:
        return env
    if variant == "all":
        raise UserError("`variant` takes one variant, such as known, got 'all'")
    return choose_variants(env, [variant])[variant]
