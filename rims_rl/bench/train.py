"""``rims-rl bench train``: training on DemonAttack, beside stock RecurrentPPO, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from rims_rl.bench.measure import medians, torch_threads
from rims_rl.bench.update import BATCH, HIDDEN, N_ENVS, N_EPOCHS, N_STEPS, cnn_forward, cnn_update, forward, make_models
from rims_rl.envs.atari import AtariVecEnv
from rims_rl.results import provenance, write_json

NAMES = ("stock", "ours, rims", "ours, lstm", "ours, none")


def bench_train(threads: int, repeats: int, quick: bool, out: Path) -> None:
    """Measure, print tables, and write ``out``."""
    started = time.time()
    n_steps = 16 if quick else N_STEPS
    steps = N_ENVS * n_steps
    stock_env = VecFrameStack(make_atari_env("DemonAttackNoFrameskip-v4", N_ENVS, seed=0), 4)
    env = AtariVecEnv("demon_attack", N_ENVS, num_threads=threads, seed=0)
    with torch_threads(threads):
        models = {name: model for name, model in make_models(stock_env, env, n_steps).items() if name in NAMES}
        timed: dict[str, Callable[[], object]] = {}
        for name, model in models.items():
            timed[f"{name}: rollout"] = _rollout(model)
            timed[f"{name}: update"] = model.train
        rims: Any = models["ours, rims"]
        timed["env"] = _env_alone(env, n_steps)
        timed["forward"] = _many(forward(rims), n_steps)
        timed["encoder forward"] = _many(cnn_forward(rims), n_steps)
        timed["encoder"] = cnn_update(rims)
        timed["core"] = _core_update(rims)
        timed["heads"] = _heads_update(rims)
        print(f"{repeats} rounds of {steps} steps for each of {len(models)} agents, and one to warm up", flush=True)
        ms = medians(timed, repeats)
    agents = {
        name: {
            "rollout_ms": ms[f"{name}: rollout"],
            "update_ms": ms[f"{name}: update"],
            "steps_per_second": steps / (ms[f"{name}: rollout"] + ms[f"{name}: update"]) * 1e3,
        }
        for name in models
    }
    rollout, update = agents["ours, rims"]["rollout_ms"], agents["ours, rims"]["update_ms"]
    ceilings = {
        "env alone": steps / ms["env"] * 1e3,
        "cnn alone": steps / (ms["encoder forward"] + ms["encoder"]) * 1e3,
        "env and cnn": steps / (ms["env"] + ms["encoder forward"] + ms["encoder"]) * 1e3,
    }
    speed = {name: agent["steps_per_second"] for name, agent in agents.items()}
    result = {
        "what": f"DemonAttack, {N_ENVS} environments x {n_steps} steps, {N_EPOCHS} epochs of minibatches of {BATCH}, "
        f"{HIDDEN} units, the agents taking turns in one process; medians. stock: make_atari_env, "
        "sb3_contrib.RecurrentPPO and CnnLstmPolicy as they come. ours: ALE's vector environment, "
        "rims_rl.agents.RecurrentPPO and CnnRimsPolicy. where_rims_ms, milliseconds of one iteration of ours, rims: "
        "env, forward, encoder, core and heads (both directions) measured alone on the same data; the rest is what is "
        "left of rollout and update, and may be below 0. ceilings, in steps per second: env alone steps with "
        "random actions; cnn alone is the encoder's forward for the rollout, and both directions for the update.",
        "threads": threads,
        "repeats": repeats,
        "agents": agents,
        "where_rims_ms": {
            "rollout: env": ms["env"],
            "rollout: forward": ms["forward"],
            "rollout: buffer, the rest": rollout - ms["env"] - ms["forward"],
            "update: encoder": ms["encoder"],
            "update: core": ms["core"],
            "update: heads, losses, optimizer": ms["heads"],
            "update: the rest": update - ms["encoder"] - ms["core"] - ms["heads"],
        },
        "ceilings": ceilings,
        "targets": [
            {"what": "steps per second, ours with rims / stock", "must be": "at least", "target": 5.0,
             "reached": speed["ours, rims"] / speed["stock"]},
            {"what": "ours with rims as a share of env and cnn alone", "must be": "goal", "target": 0.75,
             "reached": speed["ours, rims"] / ceilings["env and cnn"]},
        ],
        **provenance(started),
    }  # fmt: skip
    write_json(out, result)
    _print(result)
    print(f"written to {out}")


def _rollout(model: Any) -> Callable[[], None]:
    _, callback = model._setup_learn(10**9)

    def run() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)

    return run


def _env_alone(env: VecEnv, n_steps: int) -> Callable[[], None]:
    env.reset()
    actions = np.random.default_rng(0).integers(0, 6, (n_steps, N_ENVS))

    def run() -> None:
        for step in actions:
            env.step(step)

    return run


def _core_update(model: Any) -> Callable[[], None]:
    """The core forward and backward, down to the features, on every minibatch."""
    policy, core = model.policy, model.policy.core

    def run() -> None:
        for _ in range(model.n_epochs):
            for data in model.rollout_buffer.get(model.batch_size):
                features = torch.rand(len(data.actions), policy.features_dim, requires_grad=True)
                core.zero_grad()
                policy._process_sequence(features, data.lstm_states.pi, data.episode_starts, core)[0].sum().backward()

    return run


def _heads_update(model: Any) -> Callable[[], None]:
    """What is left of an update: heads, losses and the optimizer's step, on every minibatch."""
    policy = model.policy

    def run() -> None:
        for _ in range(model.n_epochs):
            for data in model.rollout_buffer.get(model.batch_size):
                latent = torch.rand(len(data.actions), policy.core.output_size, requires_grad=True)
                distribution = policy._get_action_dist_from_latent(policy.mlp_extractor.forward_actor(latent))
                values = policy.value_net(policy.mlp_extractor.forward_critic(latent)).flatten()
                ratio = torch.exp(distribution.log_prob(data.actions.long().flatten()) - data.old_log_prob)
                loss = (
                    (data.advantages * ratio).mean() + F.mse_loss(data.returns, values) - distribution.entropy().mean()
                )
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), model.max_grad_norm)
                policy.optimizer.step()

    return run


def _many(run: Callable[[], object], times: int) -> Callable[[], None]:
    def runs() -> None:
        for _ in range(times):
            run()

    return runs


def _print(result: dict[str, Any]) -> None:
    console = Console()
    table = Table(title="Training on DemonAttack")
    for column in ("", "steps/s", "x stock", "rollout ms", "update ms"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    stock = result["agents"]["stock"]["steps_per_second"]
    for name, agent in result["agents"].items():
        speed = agent["steps_per_second"]
        row = (f"{speed:.0f}", f"{speed / stock:.1f}", f"{agent['rollout_ms']:.0f}", f"{agent['update_ms']:.0f}")
        table.add_row(name, *row)
    for name, speed in result["ceilings"].items():
        table.add_row(name, f"{speed:.0f}", f"{speed / stock:.1f}")
    console.print(table)
    table = Table(title="Where the time of ours, rims goes")
    table.add_column("")
    table.add_column("ms", justify="right")
    table.add_column("%", justify="right")
    parts = result["where_rims_ms"]
    for name, ms in parts.items():
        table.add_row(name, f"{ms:.0f}", f"{ms / sum(parts.values()) * 100:.0f}")
    console.print(table)
    for target in result["targets"]:
        console.print(f"{target['what']}: {target['reached']:.2f} ({target['must be']} {target['target']})")
