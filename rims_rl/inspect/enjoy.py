"""``rims-rl enjoy``: watch a saved policy play, in a video or in a window."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import free_name
from rims_rl.envs.names import resolve_saved
from rims_rl.envs.watch import frame_of, make_watched, own_speed
from rims_rl.evaluation.drop_and_force import check_rims, intervene
from rims_rl.inspect.overlay import Overlay
from rims_rl.inspect.play import describe
from rims_rl.inspect.play import play as play_inside
from rims_rl.inspect.video_files import write_video


def enjoy(
    run: Path,
    out: Path | None,
    episodes: int,
    max_steps: int | None,
    deterministic: bool | None,
    seed: int,
    fps: float | None,
    window: bool,
    threads: int,
    game_mode: int | None = None,
    difficulty: int | None = None,
    overlay: bool = False,
    drop: Sequence[int] = (),
    force: Sequence[int] = (),
) -> Path | None:
    """Play ``run``'s policy, and return its video: one frame for each step, the one the agent acted on.

    With ``overlay``, what RIMs do is drawn beside it.

    Atari games are played on Stable-Baselines3's wrappers, whatever the run was trained on, because only these show
    the game in colour. As in training, a lost life resets the memory; the video goes on until the game is over.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    policy, about = load_policy(run)
    backend = "sb3" if resolve_saved(about).rom else None
    env = resolve_saved(about, backend=backend, game_mode=game_mode, difficulty=difficulty)
    if deterministic is None:
        deterministic = env.deterministic
    if window:
        _check_window(out, fps, overlay)
    if overlay:
        check_rims(policy, run, "--overlay shows")
    envs = make_watched(env, seed, "human" if window else "rgb_array")
    seen = with_statistics(envs, about.get("normalisation"))
    console = Console(highlight=False)

    def play(show: Callable[[], Any]) -> int:
        return _play(policy, seen, env.name, episodes, max_steps, deterministic, console, show)

    with intervene(policy, run, drop, force):
        if window:
            play(lambda: None)
            return None
        out = out or free_name((run if run.is_dir() else run.parent) / "videos", env.name, ".mp4")
        fps = fps or own_speed(envs, env)
        frame = frame_of(envs, env)
        if overlay:
            draw = Overlay(describe(policy, envs, env), frame)
            with write_video(out, fps, draw.width, draw.height) as write:
                steps, _ = play_inside(
                    policy,
                    envs,
                    about,
                    env,
                    episodes,
                    max_steps,
                    deterministic,
                    console,
                    lambda step: write(draw(step)),
                )
        else:
            with write_video(out, fps, frame.shape[1], frame.shape[0]) as write:
                steps = play(lambda: write(frame_of(envs, env)))
    console.print(f"{steps:,} frames, {fps:g} per second: {out}", soft_wrap=True)
    return out


def _play(
    policy: Any,
    envs: VecEnv,
    name: str,
    episodes: int,
    max_steps: int | None,
    deterministic: bool,
    console: Console,
    show: Callable[[], Any],
) -> int:
    """Call ``show`` before each step, print the score of each episode, and return the number of steps."""
    steps, finished, score, state, starts = 0, 0, 0.0, None, np.ones(1, bool)
    observations = envs.reset()
    # Ctrl-C stops also what a script started in the background, where Python leaves it ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(name, total=episodes)
        try:
            while finished < episodes and steps != max_steps:
                show()
                actions, state = policy.predict(observations, state, starts, deterministic)
                observations, rewards, starts, infos = envs.step(actions)
                steps, score = steps + 1, score + float(rewards[0])
                if "episode" in infos[0]:
                    episode, finished, score = infos[0]["episode"], finished + 1, 0.0
                    console.print(f"{name}: score {episode['r']:g} after {episode['l']:,} steps")
                progress.update(bar, completed=finished, description=f"{name}, {steps:,} steps, score {score:g}")
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGINT, before)
    if finished < episodes:
        console.print(f"{name}: score {score:g} so far; stopped after {steps:,} steps")
    return steps


def _check_window(out: Path | None, fps: float | None, overlay: bool) -> None:
    if overlay:
        raise UserError("--overlay is drawn in videos: leave out --window or --overlay")
    for flag, value in (("--out", out), ("--fps", fps)):
        if value is not None:
            raise UserError(f"--window writes no video and shows games at their own speed: leave out {flag} {value}")
    screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if not screen:
        raise UserError("--window needs a screen, and DISPLAY is not set; without --window a video is written")
