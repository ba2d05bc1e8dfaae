"""How RIMs are used in the last rollout, in numbers and as a picture."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.logger import Image
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from rims_rl.agents.algorithms.ppo import RecurrentPPO
from rims_rl.agents.callbacks.tensorboard import Counts
from rims_rl.core import RIM


def record_rim_statistics(model: RecurrentPPO) -> float:
    """How often each RIM is active, how often activity switches, the entropy of input attention, and the largest value
    in the state, which it returns (0 without RIMs)."""
    if not isinstance(model.policy.core, RIM):
        return 0.0
    active, attention, _ = _look_inside(model)
    model.logger.record("rims/usage", Counts(active.sum(0).tolist()))
    for k, share in enumerate(active.float().mean(0).tolist()):
        model.logger.record(f"rims/active_{k}", share)
    entropy = -(attention * attention.clamp_min(1e-12).log()).sum(-1).mean()
    model.logger.record("rims/attention_entropy", entropy.item())
    model.logger.record("rims/switching_rate", active.float().diff(dim=0).abs().mean().item())
    states: Any = model._last_lstm_states
    largest = max(part.abs().max().item() for part in (*states.pi, *states.vf))
    model.logger.record("rims/largest_state", largest)
    return largest


def write_raster(model: RecurrentPPO) -> None:
    """Which RIMs were active at each step, as a picture. At once: a checkpoint keeps only numbers for later."""
    if not isinstance(model.policy.core, RIM):
        return
    from rims_rl.common.rim_pictures import raster_image  # it takes a second to import, and only evaluations want it

    active, _, starts = _look_inside(model)
    picture = Image(raster_image(active.numpy(), starts.numpy() != 0), "HWC")
    for output in model.logger.output_formats:
        output.write({"rims/activity": picture}, {"rims/activity": ()}, model.num_timesteps)


def _look_inside(model: RecurrentPPO) -> tuple[Tensor, Tensor, Tensor]:
    """Of one environment's part of the rollout, run through the core once more: who was active (T, K), input attention
    (T, K, N + 1), and episode starts (T)."""
    policy: Any = model.policy
    buffer: Any = model.rollout_buffer
    observations = buffer.observations
    first = {k: v[:, 0] for k, v in observations.items()} if isinstance(observations, dict) else observations[:, 0]
    state = tuple(part[:, :1] for part in buffer.states[0].pi)
    starts = torch.as_tensor(buffer.episode_starts[:, 0], device=policy.device)
    with torch.no_grad(), policy.core.trace() as trace:
        obs = obs_as_tensor(first, policy.device)
        policy.run_core(policy.encode(obs), state, starts)
    return trace.active[:, 0].cpu(), trace.input_attention[:, 0].cpu(), starts.cpu()
