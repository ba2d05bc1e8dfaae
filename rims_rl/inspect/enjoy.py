"""Watch a saved policy play, in a video or in a window."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.agents.policies.action_masks import with_masks
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import check_writable, free_name
from rims_rl.envs.names import Resolved
from rims_rl.envs.watch import frame_of, make_watched, own_speed
from rims_rl.evaluation.drop_and_force import check_rims, intervene
from rims_rl.inspect.options import EnjoyOptions, EnjoyResult
from rims_rl.inspect.overlay import HEIGHT, Overlay
from rims_rl.inspect.play import describe, stoppable
from rims_rl.inspect.play import play as play_inside
from rims_rl.inspect.video_files import check_video_name, write_video
from rims_rl.runs.environment import resolve_saved

__all__ = ["EnjoyOptions", "EnjoyResult", "enjoy"]

log = logging.getLogger(__name__)


def enjoy(options: EnjoyOptions) -> EnjoyResult:
    """Play a policy and make a video: one frame for each step, the one the agent acted on.

    Atari games are played on Stable-Baselines3's wrappers, whatever the run was trained on, because only these show
    the game in colour. As in training, a lost life resets the memory; the video goes on until the game is over.
    """
    run = options.run
    if options.window:
        _check_window(options)
    elif options.out is not None:
        check_video_name(options.out)
        check_writable(options.out)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    policy, description = load_policy(run, trust=options.trust)
    backend = "sb3" if resolve_saved(description).rom else None
    env = resolve_saved(description, backend=backend, game_mode=options.game_mode, difficulty=options.difficulty)
    if options.overlay:
        check_rims(policy, run, "`overlay` shows")
    with intervene(policy, run, options.drop, options.force):  # which checks these
        envs = make_watched(env, options.seed, "human" if options.window else "rgb_array")
        seen = with_statistics(envs, description.normalization)
        if options.window:
            steps, scores = _play(policy, seen, env, options, lambda: None)
            return EnjoyResult(None, steps, None, scores)
        out = options.out or free_name((run if run.is_dir() else run.parent) / "videos", env.name, ".mp4")
        fps = options.fps or own_speed(envs, env)
        frame = frame_of(envs, env)
        if options.overlay:
            draw = Overlay(describe(policy, envs, env), frame)
            with write_video(out, fps, draw.width, draw.height) as write:
                steps, episodes = play_inside(
                    policy, envs, description.normalization, env, options, lambda step: write(draw(step))
                )
            scores = [episode["score"] for episode in episodes if episode["score"] is not None]
        else:
            times = max(1, round(HEIGHT / frame.shape[0]))  # a game of 160 x 210 is too small to watch
            with write_video(out, fps, times * frame.shape[1], times * frame.shape[0]) as write:
                steps, scores = _play(policy, seen, env, options, lambda: write(_enlarged(frame_of(envs, env), times)))
    return EnjoyResult(out, steps, fps, scores)


def _enlarged(frame: np.ndarray, times: int) -> np.ndarray:
    return frame.repeat(times, 0).repeat(times, 1)


def _play(
    policy: Any, envs: VecEnv, env: Resolved, options: EnjoyOptions, show: Callable[[], Any]
) -> tuple[int, list[float]]:
    """Call ``show`` before each step. Returns the number of steps, and the score of each finished episode."""
    name, episodes, deterministic = env.name, options.episodes, options.deterministic
    if deterministic is None:
        deterministic = env.deterministic
    steps, score, state, starts, scores = 0, 0.0, None, np.ones(1, bool), list[float]()
    observations, player = envs.reset(), with_masks(policy, envs)
    with Progress(transient=True, disable=not options.progress) as progress, stoppable():
        bar = progress.add_task(name, total=episodes)
        try:
            while len(scores) < episodes and steps != options.max_steps:
                show()
                actions, state = player.predict(observations, state, starts, deterministic)
                observations, rewards, starts, infos = envs.step(actions)
                steps, score = steps + 1, score + float(rewards[0])
                if "episode" in infos[0]:
                    episode, score = infos[0]["episode"], 0.0
                    scores.append(float(episode["r"]))
                    log.info(f"{name}: score {episode['r']:g} after {episode['l']:,} steps")
                progress.update(bar, completed=len(scores), description=f"{name}, {steps:,} steps, score {score:g}")
        except KeyboardInterrupt:
            pass
    if len(scores) < episodes:
        log.info(f"{name}: score {score:g} so far; stopped after {steps:,} steps")
    return steps, scores


def _check_window(options: EnjoyOptions) -> None:
    if options.overlay:
        raise UserError("`overlay` is drawn in videos: leave out `window` or `overlay`")
    for name, value in (("out", options.out), ("fps", options.fps)):
        if value is not None:
            raise UserError(f"`window` writes no video and shows games at their own speed: leave out `{name}` {value}")
    screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if not screen:
        raise UserError("`window` needs a screen, and DISPLAY is not set; without `window` a video is written")
