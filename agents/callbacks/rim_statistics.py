"""How alive RIMs are in the last rollout, in numbers and as a picture."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from stable_baselines3.common.logger import Image
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from rims_rl.agents.algorithms.ppo import RecurrentPPO
from rims_rl.agents.callbacks.tensorboard import Counts
from rims_rl.core import RIM
from rims_rl.core.rims.life import measures, usage

LOOKED_AT = 128  # steps, at least, if the rollout has as many


class Life(NamedTuple):
    """What Logging warns of."""

    usage: list[float]  # how often each RIM was active
    largest_state: float


def record_rim_statistics(model: RecurrentPPO) -> Life | None:
    """Log what `docs/how-to/inspect.md` lists; None without RIMs."""
    if not isinstance(model.policy.core, RIM):
        return None
    active, attention, communication, _ = _look_inside(model)
    used = usage(active).tolist()
    model.logger.record("rims/usage", Counts(active.flatten(0, 1).sum(0).tolist()))
    for k, share in enumerate(used):
        model.logger.record(f"rims/active_{k}", share)
    states: Any = model._last_lstm_states
    largest = max(part.abs().max().item() for part in (*states.pi, *states.vf))
    for name, value in (measures(active, attention, communication) | {"largest_state": largest}).items():
        model.logger.record(f"rims/{name}", value)
    return Life(used, largest)


def write_raster(model: RecurrentPPO) -> None:
    """Which RIMs were active at each step, as a picture. At once: a checkpoint keeps only numbers for later."""
    if not isinstance(model.policy.core, RIM):
        return
    from rims_rl.common.rim_pictures import raster_image  # it takes a second to import, and only evaluations want it

    active, _, _, starts = _look_inside(model)
    picture = Image(raster_image(active[:, 0].numpy(), starts[:, 0].numpy() != 0), "HWC")
    for output in model.logger.output_formats:
        output.write({"rims/activity": picture}, {"rims/activity": ()}, model.num_timesteps)


def _look_inside(model: RecurrentPPO) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of one environment's part of the rollout, or of several if that is short, run through the core once more: who was
    active (T, B, K), input attention (T, B, K, N + 1), communication (T, B, K, K), and episode starts (T, B)."""
    policy: Any = model.policy
    buffer: Any = model.rollout_buffer
    count = min(buffer.n_envs, math.ceil(LOOKED_AT / buffer.buffer_size))

    def first(array: Any) -> Any:
        """(T, environments, ...) -> (B * T, ...): sequences one after the other."""
        return array[:, :count].swapaxes(0, 1).reshape(-1, *array.shape[2:])

    observations = buffer.observations
    seen = {k: first(v) for k, v in observations.items()} if isinstance(observations, dict) else first(observations)
    state = tuple(part[:, :count] for part in buffer.states[0].pi)
    starts = torch.as_tensor(first(buffer.episode_starts), device=policy.device)
    with torch.no_grad(), policy.core.trace() as trace:
        policy.run_core(policy.encode(obs_as_tensor(seen, policy.device)), state, starts)
    inside = (part.cpu() for part in (trace.active, trace.input_attention, trace.communication))
    return *inside, starts.view(count, -1).t().cpu()
