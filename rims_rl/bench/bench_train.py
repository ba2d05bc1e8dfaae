"""Training on an Atari game or on MiniGrid, beside stock RecurrentPPO; where the time goes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sb3_contrib
import torch
import torch.nn.functional as F
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from torch import Tensor

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.policies.encoders import DictEncoder
from rims_rl.bench.bench_update import HIDDEN, N_ENVS, N_STEPS, encoder_forward, encoder_update, forward, make_models
from rims_rl.bench.measure import BenchOptions, medians, torch_threads
from rims_rl.bench.plain_agent import PlainAgent
from rims_rl.common.errors import UserError
from rims_rl.config import zoo
from rims_rl.core import weights_at_rest
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import Resolved, resolve
from rims_rl.runs.provenance import provenance

log = logging.getLogger(__name__)


def bench_train(env: str, options: BenchOptions) -> dict[str, Any]:
    """Measure; the result is ready for JSON."""
    threads, repeats, quick = options.threads, options.repeats, options.quick
    started = time.time()
    resolved = resolve(env)
    if resolved.family not in ("atari", "minigrid"):
        raise UserError(f"`env` must be an Atari game or a MiniGrid environment, such as PickupKnown, got {env}")
    prepare = _atari if resolved.family == "atari" else _minigrid
    with torch_threads(threads):
        models, target, what = prepare(resolved, threads, 32 if quick else N_STEPS)
        timed: dict[str, Callable[[], object]] = {}
        for name, model in models.items():
            plain = isinstance(model, PlainAgent)
            timed[f"{name}: rollout"] = model.rollout if plain else _rollout(model)
            timed[f"{name}: update"] = model.update if plain else model.train
        rims: Any = models["ours, rims"]
        n_steps, steps = rims.n_steps, rims.n_steps * rims.n_envs
        timed["env"] = _env_alone(rims.env, n_steps)
        timed["forward"] = _many(forward(rims), rims, n_steps)
        timed["encoder forward"] = _many(encoder_forward(rims), rims, n_steps)
        timed["encoder"] = encoder_update(rims)
        timed["core"] = _core_update(rims)
        timed["heads"] = _heads_update(rims)
        log.info(f"{repeats} rounds of {steps} steps for each of {len(models)} agents, and one to warm up")
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
    targets = [
        ("steps per second, ours with rims / stock", "at least", target, speed["ours, rims"] / speed["stock"]),
        ("ours with rims as a share of env and cnn alone", "goal", 0.75, speed["ours, rims"] / ceilings["env and cnn"]),
    ]
    if (fast := speed.get("ours, rims, bf16")) is not None:
        targets.append(("steps per second, ours with rims and bf16 / stock", "goal", 10.0, fast / speed["stock"]))
    return {
        "what": f"{resolved.name}, {rims.n_envs} environments x {n_steps} steps, {rims.n_epochs} epochs of minibatches "
        f"of {rims.batch_size}, {rims.policy.core.hidden_size} units, the agents taking turns in one process; medians. "
        f"{what} where_rims_ms, milliseconds of one iteration of ours, rims: "
        "env, forward, encoder, core and heads (both directions) measured alone on the same data; the rest is what is "
        "left of rollout and update, and may be below 0. ceilings, in steps per second: env alone steps with "
        "random actions; cnn alone is the encoder's forward for the rollout, and both directions for the update.",
        "env": resolved._asdict(),
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
        "targets": [dict(zip(("what", "must be", "target", "reached"), row, strict=True)) for row in targets],
        **provenance(started),
    }  # fmt: skip


def _atari(env: Resolved, threads: int, n_steps: int) -> tuple[dict[str, Any], float, str]:
    """The agents, how much faster than stock ours has to be, and what was compared."""
    stock_envs = VecFrameStack(make_atari_env(f"{env.name}NoFrameskip-v4", N_ENVS, seed=0), 4)
    models = make_models(stock_envs, make_envs(env, N_ENVS, 0, threads), n_steps)
    del models["stock, shared"]
    ours: Any = models["ours, rims"]
    plain_envs = VecFrameStack(make_atari_env(f"{env.name}NoFrameskip-v4", N_ENVS, seed=0), 4)
    models["plain lstm"] = PlainAgent(plain_envs, HIDDEN, n_steps, ours.n_epochs, ours.batch_size)
    return models, 5.0, (
        "stock: make_atari_env, sb3_contrib.RecurrentPPO and CnnLstmPolicy as they come. plain lstm: one LSTM called "
        "step by step in a hundred lines of plain torch, ours, in the manner of CleanRL. ours: ALE's vector "
        "environment, rims_rl.agents.RecurrentPPO and CnnRimsPolicy; with bf16 the encoder in bfloat16."
    )  # fmt: skip


def _minigrid(env: Resolved, threads: int, n_steps: int) -> tuple[dict[str, Any], float, str]:
    """As :func:`_atari`, with the settings of the zoo."""
    config = zoo.load(env, "ppo", overrides=[f"n_steps={n_steps}"]).config
    envs = make_envs(env, config.n_envs, 0, threads)
    kwargs = config.algorithm_kwargs() | {"device": "cpu"}
    models = {}
    for core in ("lstm", "rims", "none"):
        policy_kwargs = config.policy_arguments() | {"core": core} | ({} if core == "rims" else {"core_kwargs": {}})
        models[f"ours, {core}"] = RecurrentPPO(config.policy, envs, policy_kwargs=policy_kwargs, **kwargs)
    for ours in ("sequence_length", "replay_active"):
        del kwargs[ours]
    lstm = {"lstm_hidden_size": config.num_rims * config.rim_size, "features_extractor_class": _FlatEncoder}
    one_by_one = make_envs(env._replace(vec_env="dummy"), config.n_envs, 0).unwrapped
    stock = {
        name: sb3_contrib.RecurrentPPO("MultiInputLstmPolicy", its_envs, policy_kwargs=lstm, **kwargs)
        for name, its_envs in (("stock", one_by_one), ("stock, our vector env", envs))
    }
    return stock | models, 4.0, (
        "stock: sb3_contrib.RecurrentPPO and MultiInputLstmPolicy, one LSTM for the actor and one for the critic, on "
        "Stable-Baselines3's DummyVecEnv of the same environment, and on ours. ours: rims_rl.agents.RecurrentPPO and "
        "MultiInputRimsPolicy, sequences as in the zoo. All have the same encoder for small grids."
    )  # fmt: skip


class _FlatEncoder(DictEncoder):
    """Elements side by side, as Stable-Baselines3's own policies want them."""

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return super().forward(observations).flatten(1)


def _rollout(model: Any) -> Callable[[], None]:
    _, callback = model._setup_learn(10**9)

    def run() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)

    return run


def _env_alone(env: VecEnv, n_steps: int) -> Callable[[], None]:
    env.reset()
    action_space: Any = env.action_space
    actions = np.random.default_rng(0).integers(0, action_space.n, (n_steps, env.num_envs))

    def run() -> None:
        for step in actions:
            env.step(step)

    return run


def _core_update(model: Any) -> Callable[[], None]:
    """The core forward and backward, down to the features, on every minibatch."""
    policy, core = model.policy, model.policy.core
    encoder = policy.features_extractor
    shape = (
        (encoder.num_elements, encoder.element_size) if isinstance(encoder, DictEncoder) else (encoder.features_dim,)
    )

    def run() -> None:
        for _ in range(model.n_epochs):
            for data in model.rollout_buffer.get(model.batch_size):
                features = torch.rand(len(data.actions), *shape, requires_grad=True)
                core.zero_grad()
                policy.run_core(features, data.lstm_states.pi, data.episode_starts)[0].sum().backward()

    return run


def _heads_update(model: Any) -> Callable[[], None]:
    """What is left of an update: heads, losses and the optimizer's step, on every minibatch."""
    policy = model.policy

    def run() -> None:
        for _ in range(model.n_epochs):
            for data in model.rollout_buffer.get(model.batch_size):
                latent = torch.rand(len(data.actions), policy.core.output_size, requires_grad=True)
                distribution = policy._get_action_dist_from_latent(policy.actor_head(latent))
                values = policy.critic_head(latent).flatten()
                ratio = torch.exp(distribution.log_prob(data.actions.long().flatten()) - data.old_log_prob)
                loss = (
                    (data.advantages * ratio).mean() + F.mse_loss(data.returns, values) - distribution.entropy().mean()
                )
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), model.max_grad_norm)
                policy.optimizer.step()

    return run


def _many(run: Callable[[], object], model: Any, times: int) -> Callable[[], None]:
    def runs() -> None:
        with weights_at_rest(model.policy):  # as in a rollout
            for _ in range(times):
                run()

    return runs
