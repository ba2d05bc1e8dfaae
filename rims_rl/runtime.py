"""Runs a policy that ``rims-rl export`` wrote as ONNX, with numpy and onnxruntime alone: no torch is needed.

::

    agent = load("CartPole-v1.onnx")
    action = agent.act(observation, episode_start=True)

An ONNX file holds tensor operations and weights, no code: loading it runs nothing. This module also works alone:
``rims-rl export`` puts a copy of it, ``rims_runtime.py``, beside each ONNX file.
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]

try:
    from rims_rl.common.errors import UserError
except ImportError:  # alone, beside an ONNX file

    class UserError(Exception):  # type: ignore[no-redef]
        """What is wrong, in one sentence."""


__all__ = ["Agent", "load"]

KEY = "rims_rl"  # of our description in the file's metadata
TYPES = {
    f"tensor({name})": np.dtype(type_)
    for name, type_ in (
        ("float", "float32"), ("double", "float64"), ("float16", "float16"), ("bool", "bool"),
        *((f"{sign}int{bits}", f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
}  # fmt: skip


def load(path: str | Path, *, seed: int | None = None, threads: int = 1) -> Agent:
    """The policy in ``path``. ``seed`` is that of sampled actions."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what is wrong is said once, below
    # A file may name others that hold its weights; in a folder that does not exist there are none.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", f"{path}/nothing")
    try:
        session = onnxruntime.InferenceSession(Path(path).read_bytes(), options, providers=["CPUExecutionProvider"])
        text = session.get_modelmeta().custom_metadata_map.get(KEY)
        description = None if text is None else json.loads(text)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # onnxruntime's errors have no class in common
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged or not an ONNX file: {reason}") from error
    if not isinstance(description, dict):
        raise UserError(f"{path} is not a policy: it has no description by rims-rl; write one with `rims-rl export`")
    try:
        _check_actions(description["action_space"], {output.name: output.shape for output in session.get_outputs()})
        return Agent(session, description, seed)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} is not a policy that rims-rl exported ({reason}); write one anew") from error


class Agent:
    """A policy with the states of its environments. Made by :func:`load`.

    Attributes:
        description: what the file says of itself: environment, spaces, sizes, versions, score.
        state: the pair `(h, c)`, each `(layers, environments, hidden_size)`; None before the first step.
    """

    def __init__(
        self, session: onnxruntime.InferenceSession, description: dict[str, Any], seed: int | None = None
    ) -> None:
        self.description = description
        self.state: tuple[np.ndarray, np.ndarray] | None = None
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]
        self._random = np.random.default_rng(seed)
        # what the graph takes, and not what a description says of it: anybody may have written that
        inputs = {part.name: (part.shape, part.type) for part in session.get_inputs()}
        layers, _, width = inputs["h"][0]
        self._state_size = int(layers), int(width)
        self._actions = int(inputs.pop("action_masks")[0][1]) if "action_masks" in inputs else None
        parts = {name: part for name, part in inputs.items() if name not in ("h", "c", "episode_start")}
        self._is_dict = "observation" not in parts
        self._parts = {
            name.removeprefix("observation").removeprefix("."): (tuple(map(int, shape[1:])), TYPES[type_])
            for name, (shape, type_) in parts.items()
        }

    def reset(self) -> None:
        """Forget all states; the next step may be of another number of environments."""
        self.state = None

    def act(
        self, observation: Any, episode_start: Any, deterministic: bool = True, action_masks: Any = None
    ) -> np.ndarray:
        """The actions for one observation, or for a batch of them.

        Args:
            observation: as the environment gives it.
            episode_start: whether it is the first of an episode, for each environment: then its state is forgotten.
            deterministic: the most likely action; else one is sampled.
            action_masks: what the environment's ``action_masks()`` gives, for each environment; None: all actions.
        """
        result = self.step(observation, episode_start, action_masks)
        return result["action"] if deterministic else self._sample(result)

    def step(self, observation: Any, episode_start: Any, action_masks: Any = None) -> dict[str, np.ndarray]:
        """All outputs of a step: action, logits (or action_mean and action_log_std), value and, with RIMs, active."""
        inputs, single = self._check(observation)
        batch = len(next(iter(inputs.values())))
        starts = np.atleast_1d(np.asarray(episode_start, dtype=bool))
        if starts.shape != (batch,):
            raise ValueError(f"episode_start must have shape ({batch},), one for each environment, got {starts.shape}")
        if self.state is None:
            layers, width = self._state_size
            zeros = np.zeros((layers, batch, width), np.float32)
            self.state = (zeros, zeros)
        if self.state[0].shape[1] != batch:
            raise ValueError(
                f"the agent has the states of {self.state[0].shape[1]} environments, got {batch} observations; "
                "call reset() before you change their number"
            )
        h, c = self.state
        masks = self._check_masks(action_masks, batch)
        outputs = self._session.run(None, {**inputs, "h": h, "c": c, "episode_start": starts, **masks})
        result = dict(zip(self._outputs, outputs, strict=True))
        self.state = (result.pop("next_h"), result.pop("next_c"))
        return {name: value[0] for name, value in result.items()} if single else result

    def _check_masks(self, action_masks: Any, batch: int) -> dict[str, np.ndarray]:
        if self._actions is None:
            if action_masks is not None:
                raise ValueError("this policy knows no action_masks: its environment had none; leave them out")
            return {}
        shape = (batch, self._actions)
        masks = np.ones(shape, bool) if action_masks is None else np.atleast_2d(np.asarray(action_masks, bool))
        if masks.shape != shape:
            raise ValueError(f"action_masks must have shape {shape}, one row for each environment, got {masks.shape}")
        return {"action_masks": masks}

    def _check(self, observation: Any) -> tuple[dict[str, np.ndarray], bool]:
        """The observation by input names and as batches, and whether it was a single one."""
        if self._is_dict and (not isinstance(observation, dict) or set(observation) != set(self._parts)):
            got = sorted(observation) if isinstance(observation, dict) else type(observation).__name__
            raise ValueError(f"the observation must be a dictionary of {sorted(self._parts)}, got {got}")
        inputs, forms = {}, set()
        for key, (shape, dtype) in self._parts.items():
            array = np.asarray(observation[key] if self._is_dict else observation)
            name = f"observation.{key}" if self._is_dict else "observation"
            if array.shape not in (shape, (len(array) if array.ndim else 0, *shape)):
                raise ValueError(f"{name} must have shape {shape}, or that after a batch, got {array.shape}")
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise ValueError(f"{name} must be {dtype}, got {array.dtype}")
            inputs[name] = array.astype(dtype, copy=False).reshape(-1, *shape)
            forms.add((array.shape == shape, len(inputs[name])))
        if len(forms) > 1:
            raise ValueError(f"all keys must have the same batch, got { ({n: a.shape for n, a in inputs.items()}) }")
        return inputs, next(iter(forms))[0]

    def _sample(self, result: dict[str, np.ndarray]) -> np.ndarray:
        space = self.description["action_space"]
        if space["type"] == "Box":
            noise = self._random.standard_normal(result["action_mean"].shape)
            low, high = (np.array(space[bound], dtype=float) for bound in ("low", "high"))
            action = np.clip(result["action_mean"] + np.exp(result["action_log_std"]) * noise, low, high)
            return action.astype(result["action"].dtype)
        logits = result["logits"]
        if space["type"] == "MultiBinary":
            return (self._random.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(result["action"].dtype)
        # the largest of log-probabilities with Gumbel noise is a sample
        noisy = logits + self._random.gumbel(size=logits.shape)
        if space["type"] == "MultiDiscrete":
            parts = np.split(noisy, np.cumsum(space["nvec"])[:-1], -1)
            return np.stack([part.argmax(-1) for part in parts], -1)
        return np.asarray(noisy.argmax(-1) + space["start"])


def _check_actions(space: Any, outputs: dict[str, list[Any]]) -> None:
    """An error of some kind, if the description of the actions does not fit what the graph gives."""
    if space["type"] == "Box":
        for bound in ("low", "high"):
            np.broadcast_to(np.array(space[bound], dtype=float), outputs["action_mean"][1:])
        return
    if space["type"] == "Discrete":
        operator.index(space["start"])
    key = {"Discrete": "n", "MultiBinary": "n", "MultiDiscrete": "nvec"}[space["type"]]
    sizes, width = np.atleast_1d(space[key]), outputs["logits"][-1]
    if (sizes.sum() if key == "nvec" else sizes.prod()) != width:
        raise ValueError(f"{width} logits, and actions of {space}")
