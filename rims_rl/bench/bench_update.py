"""One PPO update, and one forward step of a rollout, beside stock RecurrentPPO."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.policies.precision import bf16_works
from rims_rl.bench.measure import BenchOptions, medians, torch_threads
from rims_rl.common.freed_memory import keep_freed_memory
from rims_rl.core import weights_at_rest
from rims_rl.runs.provenance import provenance

log = logging.getLogger(__name__)

N_ENVS, N_STEPS, N_EPOCHS, BATCH, HIDDEN = 8, 128, 4, 256, 600


def bench_update(options: BenchOptions) -> dict[str, Any]:
    """Measure; the result is ready for JSON."""
    threads, repeats, quick = options.threads, options.repeats, options.quick
    started = time.time()
    n_steps = 16 if quick else N_STEPS
    with torch_threads(threads):
        env = DummyVecEnv([_Frames] * N_ENVS)
        models = make_models(env, env, n_steps)
        for model in models.values():
            _fill(model)
        updates: dict[str, Callable[[], object]] = {name: model.train for name, model in models.items()}
        updates["cnn alone"] = encoder_update(models["ours, none"])
        forwards = {name: forward(model) for name, model in models.items()}
        forwards["cnn alone"] = encoder_forward(models["ours, none"])
        log.info(f"timing {len(updates)} updates, {repeats} rounds and one to warm up: a few minutes")
        update_ms = medians(updates, repeats)
        with ExitStack() as stack:
            for model in models.values():
                stack.enter_context(weights_at_rest(model.policy))  # as in a rollout
            forward_ms = medians(forwards, 10 * repeats, calls=10)
        keep_freed_memory()  # as `rims-rl train` does, but stock, which gains by it too, does not
        kept_ms = medians({"ours, rims": updates["ours, rims"]}, repeats)
    return {
        "what": "Median milliseconds, candidates taking turns in one process. Frames of DemonAttack's shape "
        "(4 x 84 x 84, random), 6 actions, episodes of about 200 steps. update: one call of train(), "
        f"{N_EPOCHS} epochs of minibatches of {BATCH}. forward: policy on {N_ENVS} observations, as in a rollout, "
        "without gradient. stock: sb3_contrib.RecurrentPPO with CnnLstmPolicy as it comes, one LSTM for the actor and "
        "one for the critic; stock, shared: with shared_lstm=True. ours: rims_rl.agents.RecurrentPPO with "
        "CnnRimsPolicy, one core for both. cnn alone: the encoder forward and backward on the same minibatches, "
        "nothing else: the floor. freed_memory_kept_ms: the update of ours once more, after all of that, with "
        "keep_freed_memory().",
        "n_envs": N_ENVS,
        "n_steps": n_steps,
        "n_epochs": N_EPOCHS,
        "batch_size": BATCH,
        "hidden_size": HIDDEN,
        "threads": threads,
        "repeats": repeats,
        "update_ms": update_ms,
        "freed_memory_kept_ms": kept_ms,
        "forward_ms": forward_ms,
        "parameters": {name: sum(p.numel() for p in model.policy.parameters()) for name, model in models.items()},
        "targets": [
            {"what": "update, stock / ours with rims", "must be": "at least", "target": 5.0,
             "reached": update_ms["stock"] / update_ms["ours, rims"]},
            {"what": "forward, stock / ours with rims", "must be": "at least", "target": 1.5,
             "reached": forward_ms["stock"] / forward_ms["ours, rims"]},
        ],
        **provenance(started),
    }  # fmt: skip


class _Frames(gym.Env[np.ndarray, np.int64]):
    """Random frames of an Atari game's shape."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.integers(0, 256, (4, 84, 84), np.uint8), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        frame = self.np_random.integers(0, 256, (4, 84, 84), np.uint8)
        return frame, float(self.np_random.random() < 0.05), bool(self.np_random.random() < 0.005), False, {}


def make_models(stock_env: VecEnv, env: VecEnv, n_steps: int) -> dict[str, Any]:
    """sb3-contrib's agents on one environment, ours on the other."""
    batch_size = min(BATCH, n_steps * N_ENVS)
    options: dict[str, Any] = {"n_steps": n_steps, "batch_size": batch_size, "n_epochs": N_EPOCHS, "device": "cpu"}
    lstm = {"lstm_hidden_size": HIDDEN}
    shared = {**lstm, "shared_lstm": True, "enable_critic_lstm": False}
    models = {
        "stock": sb3_contrib.RecurrentPPO("CnnLstmPolicy", stock_env, policy_kwargs=lstm, **options),
        "stock, shared": sb3_contrib.RecurrentPPO("CnnLstmPolicy", stock_env, policy_kwargs=shared, **options),
    }
    for core, precision in (("lstm", "float32"), ("rims", "float32"), ("rims", "bf16"), ("none", "float32")):
        if precision == "bf16" and not bf16_works():
            continue
        kwargs = {"core": core, "num_rims": 6, "num_active": 4, "rim_size": HIDDEN // 6, "precision": precision}
        name = f"ours, {core}" + (f", {precision}" if precision != "float32" else "")
        models[name] = RecurrentPPO("CnnRimsPolicy", env, policy_kwargs=kwargs, **options)
    return models


def _fill(model: Any) -> None:
    """One rollout in the buffer, as in training."""
    _, callback = model._setup_learn(1)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)


def encoder_update(model: Any) -> Callable[[], None]:
    """The encoder forward and backward on every minibatch of an update."""
    policy = model.policy

    def run() -> None:
        for _ in range(model.n_epochs):
            for data in model.rollout_buffer.get(model.batch_size):
                policy.zero_grad()
                policy.encode(data.observations).sum().backward()

    return run


def forward(model: Any) -> Callable[[], None]:
    """The policy on one observation of each environment."""
    obs, n_envs = obs_as_tensor(model.env.reset(), torch.device("cpu")), model.n_envs
    core = model.policy.lstm_actor  # a stock policy's is nn.LSTM
    state = torch.zeros(core.num_layers, n_envs, core.hidden_size)
    states, starts = RNNStates((state, state), (state, state)), torch.zeros(n_envs)

    def run() -> None:
        with torch.no_grad():
            model.policy(obs, states, starts)

    return run


def encoder_forward(model: Any) -> Callable[[], None]:
    obs, policy = obs_as_tensor(model.env.reset(), torch.device("cpu")), model.policy

    def run() -> None:
        with torch.no_grad():
            policy.encode(obs)

    return run
