"""How large the state of a memory becomes in ordinary training: many short runs of PPO on CartPole."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import torch
from stable_baselines3.common.env_util import make_vec_env

from rims_rl.agents import RecurrentPPO
from rims_rl.bench.measure import BenchOptions, torch_threads
from rims_rl.common.errors import Diverged
from rims_rl.runs.provenance import provenance

log = logging.getLogger(__name__)

LEARNING_RATES = (3e-4, 1e-3, 3e-3)
STEPS, N_STEPS, N_EPOCHS, RIM_SIZE = 3840, 64, 4, 20
BOUND = 100.0


def bench_stability(cores: Sequence[str], options: BenchOptions) -> dict[str, Any]:
    """Train; ``repeats`` is the number of seeds. The result is ready for JSON."""
    started = time.time()
    rates, seeds = (LEARNING_RATES[:1], 1) if options.quick else (LEARNING_RATES, options.repeats)
    cases = []
    with torch_threads(options.threads):
        for core in cores:
            for rate in rates:
                states = [largest_state(core, rate, seed) for seed in range(seeds)]
                cases.append({"core": core, "learning_rate": rate, "largest_state": states})
                log.info(f"{core}, learning rate {rate:g}: {', '.join(map(in_words, states))}")
    return {
        "what": "The largest number in the state of a core after training: RecurrentPPO with MlpRimsPolicy on "
        f"CartPole-v1, one environment, {STEPS} steps, n_steps {N_STEPS}, minibatches of {N_STEPS}, {N_EPOCHS} epochs, "
        f"6 x {RIM_SIZE} units, 4 of 6 RIMs active; one number for each seed. null: training ended in numbers that are "
        "not finite.",
        "seeds": seeds,
        "threads": options.threads,
        "cases": cases,
        "targets": [
            {"what": f"share of runs of {core} that stay below {BOUND:g}", "must be": "at least", "target": 1.0,
             "reached": _share_below_bound([case for case in cases if case["core"] == core])}
            for core in cores
        ],
        **provenance(started),
    }  # fmt: skip


def in_words(state: float | None) -> str:
    return "NaN" if state is None else f"{state:.2g}"


def _share_below_bound(cases: Sequence[dict[str, Any]]) -> float:
    states = [state for case in cases for state in case["largest_state"]]
    return sum(state is not None and state < BOUND for state in states) / len(states)


def largest_state(core: str, learning_rate: float, seed: int) -> float | None:
    """Of a short run on CartPole; None if it diverged."""
    model = RecurrentPPO(
        "MlpRimsPolicy",
        make_vec_env("CartPole-v1", 1, seed=seed),
        n_steps=N_STEPS,
        batch_size=N_STEPS,
        n_epochs=N_EPOCHS,
        learning_rate=learning_rate,
        seed=seed,
        policy_kwargs={"core": core, "rim_size": RIM_SIZE},
        device="cpu",
    )
    try:
        model.learn(STEPS)
    except Diverged:
        return None
    states = model._last_lstm_states
    parts = torch.stack([part.abs().max() for part in (*states.pi, *states.vf)])
    return None if not parts.isfinite().all() else float(parts.max())
