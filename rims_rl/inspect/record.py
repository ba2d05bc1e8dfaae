"""``rims-rl inspect``: play a saved policy, and record what its RIMs do at each step."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from rich.progress import Progress
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from rims_rl.agents.encoders import DictEncoder, SpatialEncoder
from rims_rl.agents.policies import MlpRimsPolicy
from rims_rl.agents.portable import load_policy
from rims_rl.core import RIM
from rims_rl.envs.names import Resolved, resolve_saved
from rims_rl.envs.normalise import with_statistics
from rims_rl.envs.variants import choose_variants
from rims_rl.envs.watch import frame_of, make_watched, own_speed
from rims_rl.errors import UserError
from rims_rl.files import free_name
from rims_rl.inspect.page import write_page
from rims_rl.inspect.recording import Recorder, write_recording
from rims_rl.results import provenance
from rims_rl.variants import check_observations, describe_run

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
) -> Path:
    """Play ``run``'s policy, and return the recording; with ``html``, also make a page of it.

    As in :func:`rims_rl.enjoy.enjoy`, Atari games are played on Stable-Baselines3's wrappers, because only these show
    the game in colour. The same seed gives the same game here and there.
    """
    started = time.time()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    policy, saved = load_policy(run)
    if not isinstance(policy.core, RIM):
        raise UserError(f"inspect looks at RIMs, and {run} has the core {policy.core_name!r}; give a run with rims")
    env = _choose(saved, variant)
    if deterministic is None:
        deterministic = env.deterministic
    out = out or free_name((run if run.is_dir() else run.parent) / "recordings", env.name, ".npz")
    for flag, path, suffix in (("--out", out, ".npz"), ("--html", html, ".html")):
        if path is not None and path.suffix != suffix:
            raise UserError(f"{flag} must end in {suffix}, got {path}")
    envs = make_watched(env, seed)
    if variant is not None:
        check_observations(policy, envs, run, env)
    console = Console(highlight=False)
    about = {
        "format": FORMAT,
        **describe_run(run, policy, saved),
        "env": env._asdict(),
        "num_rims": policy.num_rims,
        "num_active": policy.num_active,
        **_elements(policy),
        "action_names": _action_names(envs, env),
        "fps": own_speed(envs, env),
        "deterministic": deterministic,
        "evaluation_seed": seed,
        "episodes": [],
    }
    with write_recording(out, about) as recorder:
        steps = _play(policy, envs, saved, env, episodes, max_steps, about, recorder, console)
        about |= provenance(started)
    console.print(f"{steps:,} steps, {_megabytes(out)}: {out}", soft_wrap=True)
    if html is not None:
        write_page(out, html)
        console.print(f"the page, {_megabytes(html)}: {html}", soft_wrap=True)
    return out


def _play(
    policy: Any,
    watched: VecEnv,
    saved: dict[str, Any],
    env: Resolved,
    episodes: int,
    max_steps: int | None,
    about: dict[str, Any],
    recorder: Recorder,
    console: Console,
) -> int:
    """Record steps, write into ``about`` what came of each episode, and return the number of steps."""
    envs = with_statistics(watched, saved.get("normalisation"))
    steps, finished, score, starts = 0, 0, 0.0, np.ones(1, bool)
    observations = envs.reset()
    zeros = torch.zeros(policy.num_layers, 1, policy.lstm_output_dim)
    states = RNNStates((zeros, zeros), (zeros, zeros))
    # as in enjoy: Ctrl-C stops also what a script started in the background, where Python leaves it ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(env.name, total=episodes)
        try:
            while finished < episodes and steps != max_steps:
                if len(about["episodes"]) == finished:
                    about["episodes"].append(_begin(envs, env, steps))
                seen, _ = policy.obs_to_tensor(observations)
                frame = _picture(watched, env, policy, seen)
                with torch.no_grad(), policy.core.trace() as trace:
                    actions, values, _, states = policy.forward(
                        seen, states, torch.as_tensor(starts, dtype=torch.float32), about["deterministic"]
                    )
                acted = actions.numpy()
                if isinstance(policy.action_space, spaces.Box):
                    acted = np.clip(acted, policy.action_space.low, policy.action_space.high)
                observations, rewards, ends, infos = envs.step(acted)
                inside = trace.layers[0]  # the one that reads the observation
                recorder.add(
                    frame,
                    actions=acted[0],
                    rewards=np.float32(rewards[0]),
                    values=values.numpy()[0, 0],
                    active=inside.active.numpy()[0, 0],
                    input_attention=inside.input_attention.numpy()[0, 0],
                    communication=inside.communication.numpy()[0, 0],
                    episode_starts=starts[0],
                )
                steps, score, starts = steps + 1, score + float(rewards[0]), ends
                if "episode" in infos[0]:
                    episode, finished, score = infos[0]["episode"], finished + 1, 0.0
                    about["episodes"][-1] |= {"score": float(episode["r"]), "steps": int(episode["l"])}
                    console.print(f"{env.name}: score {episode['r']:g} after {episode['l']:,} steps")
                progress.update(bar, completed=finished, description=f"{env.name}, {steps:,} steps, score {score:g}")
        except KeyboardInterrupt:
            if not steps:
                raise
        finally:
            signal.signal(signal.SIGINT, before)
    if finished < episodes:
        console.print(f"{env.name}: score {score:g} so far; stopped after {steps:,} steps")
    return steps


def _choose(saved: dict[str, Any], variant: str | None) -> Resolved:
    """The environment to play in."""
    env = resolve_saved(saved, backend="sb3" if resolve_saved(saved).rom else None)
    if variant is None:
        return env
    if variant == "all":
        raise UserError("--variant takes one variant, such as known, got 'all'")
    return choose_variants(env, [variant])[variant]


def _begin(envs: VecEnv, env: Resolved, step: int) -> dict[str, Any]:
    """What is known of an episode when it begins at ``step``."""
    mission = envs.get_attr("unwrapped")[0].mission if env.observation else None
    return {"first_step": step, "mission": mission, "score": None, "steps": None}


def _picture(watched: VecEnv, env: Resolved, policy: MlpRimsPolicy, seen: Any) -> np.ndarray:
    """What a person looks at. Attention to positions is drawn over it, so these must be positions of this picture:
    Atari's frames show what the agent sees, but elsewhere only the observation itself surely does."""
    if env.rom is None and isinstance(policy.pi_features_extractor, SpatialEncoder):
        channels = seen[0].numpy()
        return (channels if len(channels) == 3 else channels[-1:].repeat(3, 0)).transpose(1, 2, 0)
    return frame_of(watched, env).copy()  # some environments draw the next one into the same array


def _elements(policy: MlpRimsPolicy) -> dict[str, Any]:
    """What RIMs attend to: names of the elements without null and, for positions, where they are in the picture."""
    encoder = policy.pi_features_extractor
    if isinstance(encoder, DictEncoder):
        return {"elements": list(encoder.encoders), "grid": None}
    if not isinstance(encoder, SpatialEncoder):
        return {"elements": ["observation"], "grid": None}
    grid = _grid(policy, encoder)
    return {"elements": [f"{y},{x}" for y in range(grid["rows"]) for x in range(grid["columns"])], "grid": grid}


def _grid(policy: MlpRimsPolicy, encoder: SpatialEncoder) -> dict[str, Any]:
    """Position (y, x) of the feature map sees the part of the picture that begins at ``pitch`` times (y, x) and is
    ``field`` large, both as shares of its (height, width)."""
    pitch = field = 1
    for layer in encoder.cnn:
        if isinstance(layer, nn.Conv2d):
            field += (layer.kernel_size[0] - 1) * pitch
            pitch *= layer.stride[0]
    _, *sizes = policy.observation_space.shape or ()
    rows, columns = ((size - field) // pitch + 1 for size in sizes)
    assert rows * columns == encoder.num_elements
    shares = {"pitch": [pitch / size for size in sizes], "field": [field / size for size in sizes]}
    return {"rows": rows, "columns": columns, **shares}


def _action_names(envs: VecEnv, env: Resolved) -> list[str] | None:
    game = envs.get_attr("unwrapped")[0]
    if env.rom:
        return list(game.get_action_meanings())
    if env.observation:
        return [action.name for action in game.actions][: int(game.action_space.n)]
    return None


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"
