"""``rims-rl train``: train an agent, and leave a folder from which the run can be repeated, evaluated and watched."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import get_system_info
from stable_baselines3.common.vec_env import VecNormalize

from rims_rl import zoo
from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.callbacks import Evaluation, Monitoring, ProgressBar, RimStatistics
from rims_rl.agents.portable import save_policy
from rims_rl.agents.ppo import describe_parameters
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.envs.normalise import statistics_to_json
from rims_rl.errors import UserError
from rims_rl.results import provenance, write_json
from rims_rl.runs import claim, write_yaml

ALGORITHMS = {"ppo": RecurrentPPO, "a2c": RecurrentA2C}


def train(
    env: str,
    algo: str,
    seed: int,
    device: str,
    threads: int,
    config: Path | None,
    overrides: list[str],
    logdir: Path,
    eval_freq: int,
    eval_episodes: int,
    **env_options: Any,
) -> Path:
    """Train, and return the folder of the run. Ctrl-C ends training early, and saves what has been learned.

    ``env_options`` are those of :func:`resolve`.
    """
    started = time.time()
    resolved = resolve(env, **env_options)
    settings = zoo.load(env, algo, file=config, overrides=overrides).config
    torch.set_num_threads(threads)
    console = Console(highlight=False)

    envs: Any = make_envs(resolved, settings.n_envs, seed, threads)
    evaluation: Any = make_envs(resolved, min(8, eval_episodes), seed + 1000, threads, clip_rewards=False)
    if settings.normalize:
        envs = VecNormalize(envs)
        evaluation = VecNormalize(evaluation, training=False, norm_reward=False)
    policy_kwargs = settings.policy_arguments()
    make, kwargs = ALGORITHMS[algo], settings.algorithm_kwargs()
    try:
        model = make(settings.policy, envs, seed=seed, device=device, policy_kwargs=dict(policy_kwargs), **kwargs)
    except ValueError as error:  # what only shows when the environment is known
        raise UserError(str(error)) from error

    run = claim(logdir, algo, resolved.name)
    command = shlex.join(["rims-rl", *sys.argv[1:]])
    (run / "command.txt").write_text(command + "\n")
    write_yaml(run / resolved.name / "config.yml", settings.model_dump())
    args = {"algo": algo, "env": env, **resolved.options, "seed": seed, "device": device, "threads": threads}
    write_yaml(run / resolved.name / "args.yml", args)

    def about() -> dict[str, Any]:
        """What goes with the weights; statistics of observations change as training goes on."""
        normalisation = statistics_to_json(envs) if settings.normalize else None
        options = resolved.options
        return {"env": env, "env_options": options, "algo": algo, "seed": seed, "normalisation": normalisation}

    model.set_logger(configure(str(run / "tensorboard"), ["tensorboard"]))
    console.print(f"{describe_parameters(model.policy)}\n{run}")

    callbacks = CallbackList(
        [
            ProgressBar(settings.n_timesteps),
            Monitoring(run / "0.monitor.csv", resolved.id),
            Evaluation(evaluation, eval_freq, eval_episodes, resolved.rom is None, run, policy_kwargs, about),
            RimStatistics(),
        ]
    )
    finished = True
    try:
        model.learn(settings.n_timesteps, callback=callbacks)
    except KeyboardInterrupt:
        finished = False
    save_policy(model.policy, run, policy_kwargs, **about(), steps=model.num_timesteps)
    model.save(run / f"{resolved.name}.zip")
    if settings.normalize:
        envs.save(str(run / "vecnormalize.pkl"))
    write_json(
        run / "run.json",
        {
            "command": command,
            **about(),
            "steps": model.num_timesteps,
            "finished": finished,
            "system": get_system_info(print_info=False)[0],
            **provenance(started),
        },
    )
    end = "trained" if finished else "stopped, and saved what was learned,"
    console.print(f"{end} after {model.num_timesteps:,} steps in {time.time() - started:.0f} s: {run}")
    console.print(f"next: rims-rl evaluate {run}   or: tensorboard --logdir {run}", soft_wrap=True)
    return run
