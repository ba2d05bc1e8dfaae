"""One game, step by step, with all that there is to see: what ``inspect`` records and ``enjoy`` draws as an overlay."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from rich.progress import Progress
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from rims_rl.agents.policies.action_masks import has_masks, masks_of
from rims_rl.agents.policies.cells_encoder import CellsEncoder
from rims_rl.agents.policies.encoders import DictEncoder, SpatialEncoder
from rims_rl.agents.policies.rims_policies import MlpRimsPolicy
from rims_rl.agents.saved.description import Normalization
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.common.signals import signal_handler
from rims_rl.envs.minigrid.view import Tiles
from rims_rl.envs.names import Resolved
from rims_rl.envs.watch import frame_of, is_shown
from rims_rl.inspect.options import WatchOptions

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """What the agent saw and did, and what came of it. docs/how-to/inspect.md says more of each."""

    frame: np.ndarray  # (height, width, 3) bytes
    actions: Any
    rewards: np.float32
    values: np.float32
    active: np.ndarray  # (K)
    input_attention: np.ndarray  # (K, N + 1)
    communication: np.ndarray  # (K, K)
    largest_state: np.ndarray  # (K)
    events: np.ndarray  # (E)
    episode_starts: np.bool_
    mission: str | None


def play(
    policy: Any,
    watched: VecEnv,
    normalization: Normalization | None,
    env: Resolved,
    options: WatchOptions,
    add: Callable[[Step], Any],
) -> tuple[int, list[dict[str, Any]]]:
    """Call ``add`` with every step. Returns how many there were, and what came of each episode."""
    envs = with_statistics(watched, normalization)
    episodes, deterministic = options.episodes, options.deterministic
    if deterministic is None:
        deterministic = env.deterministic
    steps, finished, score, starts, records = 0, 0, 0.0, np.ones(1, bool), list[dict[str, Any]]()
    observations, masked = envs.reset(), has_masks(envs)
    zeros = torch.zeros(policy.num_layers, 1, policy.lstm_hidden_state_shape[-1])
    states = RNNStates((zeros, zeros), (zeros, zeros))
    with Progress(transient=True, disable=not options.progress) as progress, stoppable():
        bar = progress.add_task(env.name, total=episodes)
        try:
            while finished < episodes and steps != options.max_steps:
                if len(records) == finished:
                    records.append(_begin(envs, env, steps))
                seen, _ = policy.obs_to_tensor(observations)
                frame, view = _picture(watched, env, policy, seen), _in_view(envs, env)
                allowed = masks_of(envs) if masked else None
                with torch.no_grad(), policy.allowing(allowed), policy.core.trace() as trace:
                    actions, values, _, states = policy.forward(
                        seen, states, torch.as_tensor(starts, dtype=torch.float32), deterministic
                    )
                acted = actions.numpy()
                if isinstance(policy.action_space, spaces.Box):
                    acted = np.clip(acted, policy.action_space.low, policy.action_space.high)
                observations, rewards, ends, infos = envs.step(acted)
                reward = np.float32(rewards[0])
                # of the layer that reads the observation
                active, attention, communication = (part.numpy()[0, 0] for part in trace.layers[0])
                events = np.array([reward > 0, reward < 0, *([ends[0]] if env.rom else []), *view])
                state: Any = states.pi[0]
                largest = state[0, 0, : policy.core.output_size].abs().unflatten(0, (len(active), -1)).amax(-1).numpy()
                value, mission = values.numpy()[0, 0], records[-1]["mission"]
                inside = active, attention, communication, largest
                add(Step(frame, acted[0], reward, value, *inside, events, starts[0], mission))
                steps, score, starts = steps + 1, score + float(reward), ends
                if "episode" in infos[0]:
                    episode, finished, score = infos[0]["episode"], finished + 1, 0.0
                    records[-1] |= {"score": float(episode["r"]), "steps": int(episode["l"])}
                    log.info(f"{env.name}: score {episode['r']:g} after {episode['l']:,} steps")
                progress.update(bar, completed=finished, description=f"{env.name}, {steps:,} steps, score {score:g}")
        except KeyboardInterrupt:
            if not steps:
                raise
    if finished < episodes:
        log.info(f"{env.name}: score {score:g} so far; stopped after {steps:,} steps")
    return steps, records


def stoppable() -> AbstractContextManager[Any]:
    """Ctrl-C stops also what a script started in the background, where Python leaves it ignored."""
    return signal_handler(signal.default_int_handler, [signal.SIGINT])


def describe(policy: MlpRimsPolicy, envs: VecEnv, env: Resolved) -> dict[str, Any]:
    """What the numbers of each step are about."""
    return {
        "num_rims": policy.num_rims,
        "num_active": policy.num_active,
        **_elements(policy),
        "action_names": _action_names(envs, env),
        "events": ["reward", "penalty", *(["life lost"] if env.rom else []), *(IN_VIEW if _is_pickup(env) else [])],
    }


IN_VIEW = ("target in view", "distractor in view")


def _is_pickup(env: Resolved) -> bool:
    return env.id.startswith("RimsRL/Pickup-")


def _in_view(envs: VecEnv, env: Resolved) -> list[bool]:
    """Of a pick-up task: whether the agent now sees the target, and whether it sees a distractor."""
    return list(envs.env_method("objects_in_view")[0]) if _is_pickup(env) else []


def _begin(envs: VecEnv, env: Resolved, step: int) -> dict[str, Any]:
    """What is known of an episode when it begins at ``step``."""
    mission = envs.get_attr("unwrapped")[0].mission if env.observation else None
    return {"first_step": step, "mission": mission, "score": None, "steps": None}


def _picture(watched: VecEnv, env: Resolved, policy: MlpRimsPolicy, seen: Any) -> np.ndarray:
    """What a person looks at. Attention to positions is drawn over it, so these must be positions of this picture:
    Atari's frames show what the agent sees, but elsewhere only the observation itself surely does."""
    encoder = policy.pi_features_extractor
    if isinstance(encoder, CellsEncoder):
        return _tiles()(seen[encoder.grid_key].numpy())[0].transpose(1, 2, 0)
    if env.rom is None and isinstance(encoder, SpatialEncoder):
        return _image(seen[0].numpy())
    if not is_shown(watched):
        pictures = [part[0].numpy() for part in (seen.values() if isinstance(seen, dict) else [seen])]
        images = [part for part in pictures if part.dtype == np.uint8 and part.ndim in (2, 3)]
        return _image(images[0]) if images else _NOTHING
    return frame_of(watched, env).copy()  # some environments draw the next one into the same array


_NOTHING = np.full((96, 96, 3), 128, np.uint8)


def _image(channels: np.ndarray) -> np.ndarray:
    """An observation as a picture: (channels, height, width) bytes, of which the last show the present."""
    if channels.ndim == 2:
        channels = channels[None]
    count = 3 if len(channels) % 3 == 0 else 1
    return channels[-count:].repeat(3 // count, 0).transpose(1, 2, 0)


@cache
def _tiles() -> Tiles:
    """Draws what an agent sees of a MiniGrid."""
    return Tiles(tile_size=32)


def _elements(policy: MlpRimsPolicy) -> dict[str, Any]:
    """What RIMs attend to: names of the elements without null and, for positions, which come first, where they are in
    the picture."""
    core: Any = policy.core
    encoder, grid = policy.pi_features_extractor, None
    if isinstance(encoder, CellsEncoder):
        elements, cell = encoder.names, [1 / encoder.rows, 1 / encoder.columns]
        grid = {"rows": encoder.rows, "columns": encoder.columns, "pitch": cell, "field": cell}
    elif isinstance(encoder, DictEncoder):
        elements = list(encoder.encoders)
    elif isinstance(encoder, SpatialEncoder):
        grid = _grid(policy, encoder)
        elements = [f"{y},{x}" for y in range(grid["rows"]) for x in range(grid["columns"])]
    else:
        elements = ["observation"]
    return {"elements": [*elements, *core.more_elements], "grid": grid}


def _grid(policy: MlpRimsPolicy, encoder: SpatialEncoder) -> dict[str, Any]:
    """Position (y, x) of the feature map sees the part of the picture that begins at ``pitch`` times (y, x) and is
    ``field`` large, both as shares of its (height, width)."""
    pitch = field = 1
    for layer in encoder.cnn:
        if isinstance(layer, nn.Conv2d):
            field += (layer.kernel_size[0] - 1) * pitch
            pitch *= layer.stride[0]
    _, *sizes = policy.observation_space.shape or ()
    rows, columns = ((size - field) // pitch + 1 for size in sizes)
    assert rows * columns == encoder.num_elements
    shares = {"pitch": [pitch / size for size in sizes], "field": [field / size for size in sizes]}
    return {"rows": rows, "columns": columns, **shares}


def _action_names(envs: VecEnv, env: Resolved) -> list[str] | None:
    game = envs.get_attr("unwrapped")[0]
    if env.rom:
        return list(game.get_action_meanings())
    if env.observation:
        return [action.name for action in game.actions][: int(game.action_space.n)]
    return None
