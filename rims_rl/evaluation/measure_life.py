"""How alive the RIMs of a trained agent are while it plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rims_rl.agents.policies.action_masks import with_masks
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.core import RIM
from rims_rl.core.rims.life import measures, usage
from rims_rl.envs.make import make_envs
from rims_rl.runs.environment import resolve_saved

N_ENVS = 8  # side by side


def measure_life(run: Path, steps: int, seed: int, threads: int, trust: bool = False) -> dict[str, Any] | None:
    """Play so many steps, and return the measures of ``docs/how-to/inspect.md``; None for an agent without RIMs."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    policy, description = load_policy(run, trust=trust)
    if not isinstance(policy.core, RIM):
        return None
    env = resolve_saved(description)
    envs = with_statistics(make_envs(env, N_ENVS, seed, threads, clip_rewards=False), description.normalization)
    observations, state, starts, largest = envs.reset(), None, np.ones(N_ENVS, bool), 0.0
    player = with_masks(policy, envs)
    with policy.core.trace() as trace:
        for _ in range(max(1, steps // N_ENVS)):
            actions, state = player.predict(observations, state, starts, env.deterministic)
            observations, _, starts, _ = envs.step(actions)
            largest = max(largest, *(float(np.abs(part).max()) for part in state or ()))
    envs.close()
    inside = trace.layers[0]  # of the layer that reads the observation
    return {"steps": steps, "usage": usage(inside.active).tolist(), **measures(*inside), "largest_state": largest}
