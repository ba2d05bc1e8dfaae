"""Checkpoints: all that training needs to go on, in one file that is read without running anything in it.

``<steps>.pt`` is a dictionary of tensors and plain values for ``torch.load(weights_only=True)``. It is written before a
rollout, when no data waits for an update.
"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor

from rims_rl.agents.algorithms.ppo import RecurrentPPO
from rims_rl.agents.saved.normalization import restore_statistics, statistics_of_training
from rims_rl.common.errors import Diverged, UserError
from rims_rl.common.files import Damaged, free_name, read_tensors, write_tensors
from rims_rl.core import engine_of

log = logging.getLogger(__name__)

FORMAT = 1
KEPT = 2  # the newest, and one to fall back on
COUNTERS = ("num_timesteps", "_n_updates", "_episode_num")


def capture(model: RecurrentPPO) -> dict[str, Any]:
    """All that training ``model`` goes on from. It is :class:`Diverged` if numbers in it are not finite."""
    logger, normalize = model.logger, model.get_vec_normalize_env()
    state = {
        "engine": engine_of(model.policy),
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        **{name: getattr(model, name) for name in COUNTERS},
        "episodes": list(model.ep_info_buffer or ()),
        "successes": [bool(success) for success in model.ep_success_buffer or ()],
        # the last update's losses reach TensorBoard together with the next rollout's scores
        "unwritten": {
            name: (float(value), logger.name_to_excluded[name]) for name, value in logger.name_to_value.items()
        },
        "normalization": None if normalize is None else statistics_of_training(normalize),
        "generators": _generators(model),
    }
    for part in ("policy", "optimizer", "normalization"):
        if not _is_finite(state[part]):
            raise Diverged(f"the {part} holds numbers that are not finite")
    return state


def write_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write ``<folder>/<steps>.pt`` with what :func:`capture` gave, and more, then remove all but the newest two."""
    write_tensors(folder / f"{state['num_timesteps']}.pt", {"format": FORMAT, **state})
    for old in _list(folder)[:-KEPT]:
        old.unlink()


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """The newest checkpoint that is whole. Damaged ones after it are set aside, with a warning in the log about each.
    One that cannot be read for another reason is a UserError: it may be as good as any."""
    paths = _list(folder)
    if not paths:
        raise UserError(f"{folder} has no checkpoint, so that nothing can be resumed; train anew")
    damaged = []
    for path in reversed(paths):
        try:
            state = read_tensors(path)
        except Damaged as error:
            log.warning("%s is damaged (%s); trying the one before", path, error)
            damaged.append(path)
            continue
        if "normalisation" in state:  # so in version 0.1
            state["normalization"] = state.pop("normalisation")
        _check(state, path)
        for other in damaged:
            other.rename(free_name(folder, f"{other.name}.damaged", ""))
        return state
    raise UserError(f"{folder} has no checkpoint that is whole; train anew")


def restore(model: RecurrentPPO, state: dict[str, Any]) -> None:
    """Put ``model``, whose logger is set, and the random generators where they were."""
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    for name in COUNTERS:
        setattr(model, name, state[name])
    model.ep_info_buffer = deque(state["episodes"], maxlen=model._stats_window_size)
    model.ep_success_buffer = deque(state["successes"], maxlen=model._stats_window_size)
    for name, (value, excluded) in state["unwritten"].items():
        model.logger.record(name, value, excluded)
    if (normalize := model.get_vec_normalize_env()) is not None:
        restore_statistics(normalize, state["normalization"])
    _set_generators(model, state["generators"])


def other_engine(model: RecurrentPPO, state: dict[str, Any]) -> str | None:
    """What is to be said if the loops of RIMs in the checkpoint's process were others than here: these are right too,
    but not the same to the last bit."""
    here, there = engine_of(model.policy), state.get("engine")
    if there in (None, here):
        return None
    return f"the checkpoint was made with the loops of RIMs in {there}, and here they are in {here}"


def start_games_again(model: RecurrentPPO, seed: int) -> None:
    """Reset all environments and the memory, with seeds that follow from ``seed`` and the number of steps."""
    agent: Any = model
    agent.env.seed(seed_at(seed, agent.num_timesteps))
    agent._last_obs = agent.env.reset()
    agent._last_episode_starts = np.ones(agent.n_envs, bool)
    actor, critic = ((torch.zeros_like(h), torch.zeros_like(c)) for h, c in agent._last_lstm_states)
    agent._last_lstm_states = RNNStates(actor, critic)


def seed_at(seed: int, steps: int, purpose: int = 0) -> int:
    """A seed for this moment of training; environment i adds i to it, and it stays below what ALE takes."""
    return int(np.random.SeedSequence((seed, steps, purpose)).generate_state(1)[0] >> 2)


def _list(folder: Path) -> list[Path]:
    """The oldest first."""
    return sorted((path for path in folder.glob("*.pt") if path.stem.isdigit()), key=lambda path: int(path.stem))


class _Generators(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, strict=True)

    torch: Tensor
    cuda: list[Tensor]
    numpy: tuple[Any, ...]
    python: tuple[Any, ...]
    actions: dict[str, Any]


class _Checkpoint(BaseModel):
    """What a checkpoint of ours holds. What is in the parts shows when the model takes them."""

    model_config = ConfigDict(arbitrary_types_allowed=True, strict=True)

    engine: str | None = None  # not in version 0.1
    policy: dict[str, Tensor]
    optimizer: dict[str, Any]
    num_timesteps: NonNegativeInt
    n_updates: NonNegativeInt = Field(alias="_n_updates")
    episode_num: NonNegativeInt = Field(alias="_episode_num")
    episodes: list[dict[str, Any]]
    successes: list[bool]
    unwritten: dict[str, tuple[float, Any]]
    normalization: dict[str, Any] | None
    generators: _Generators
    evaluations: dict[str, list[Any]]
    monitor_size: NonNegativeInt
    tensorboard_size: NonNegativeInt
    seconds: NonNegativeFloat


def _check(state: dict[str, Any], path: Path) -> None:
    if (found := state.get("format")) != FORMAT:
        raise UserError(
            f"{path} has the format {found!r}, and this version of rims-rl reads {FORMAT}; go on with the version that "
            "wrote it"
        )
    try:
        _Checkpoint.model_validate(state)
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(map(str, detail["loc"]))
        raise UserError(f"{path} is not a checkpoint that can be resumed: {place}: {detail['msg']}") from error


def _is_finite(value: Any) -> bool:
    """Whether all numbers in it are."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    if isinstance(value, torch.Tensor):
        return bool(value.isfinite().all())
    return not isinstance(value, float) or math.isfinite(value)


def _generators(model: RecurrentPPO) -> dict[str, Any]:
    numpy_state: Any = np.random.get_state(legacy=True)
    name, key, *rest = numpy_state
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (name, key.tolist(), *rest),
        "python": random.getstate(),
        "actions": model.action_space.np_random.bit_generator.state,
    }


def _set_generators(model: RecurrentPPO, states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
    model.action_space.np_random.bit_generator.state = states["actions"]
