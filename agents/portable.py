"""Policies on disk without pickle: weights in ``policy.safetensors``, and in ``policy.json`` how to build the rest.

Nothing in either file is ever executed. Stable-Baselines3's ``.zip`` is a pickle: loading a stranger's runs their code.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from rims_rl.agents.policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.errors import UserError
from rims_rl.files import replacing
from rims_rl.results import write_json

FORMAT = 1
POLICIES = {policy.__name__: policy for policy in (MlpRimsPolicy, CnnRimsPolicy, MultiInputRimsPolicy)}
ACTIVATIONS = {activation.__name__: activation for activation in (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU)}


def save_policy(policy: MlpRimsPolicy, folder: Path, policy_kwargs: dict[str, Any], **about: Any) -> None:
    """Write ``policy.safetensors`` and ``policy.json`` into ``folder``; ``about`` is kept in the latter as it is.

    ``policy_kwargs`` are those the policy was made with, without optimizers.
    """
    if type(policy).__name__ not in POLICIES:
        raise UserError(f"a {type(policy).__name__} cannot be written without pickle; use one of {', '.join(POLICIES)}")
    kwargs = {key: value for key, value in policy_kwargs.items() if not key.startswith("optimizer")}
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = kwargs["activation_fn"].__name__
    weights = save({name: weight.detach().contiguous() for name, weight in _weights(policy).items()})
    with replacing(folder / "policy.safetensors") as temporary:
        temporary.write_bytes(weights)
    write_json(
        folder / "policy.json",
        {
            "format": FORMAT,
            "policy": type(policy).__name__,
            "policy_kwargs": kwargs,
            "observation_space": space_to_json(policy.observation_space),
            "action_space": space_to_json(policy.action_space),
            "use_sde": policy.use_sde,
            **about,
        },
    )


def load_policy(folder: Path, device: str = "cpu") -> tuple[MlpRimsPolicy, dict[str, Any]]:
    """The policy in ``folder``, and everything in its ``policy.json``. A UserError says what is wrong with them."""
    about = read_about(folder)
    try:
        weights = load_file(folder / "policy.safetensors", device=device)
    except FileNotFoundError:
        raise UserError(f"{folder} has no policy.safetensors; is it the folder of a run?") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{folder / 'policy.safetensors'} is damaged or not a safetensors file: {error}") from error
    kwargs = dict(about["policy_kwargs"])
    try:
        if "activation_fn" in kwargs:
            kwargs["activation_fn"] = ACTIVATIONS[kwargs["activation_fn"]]
        observation_space, action_space = (space_from_json(about[key]) for key in ("observation_space", "action_space"))
        if "." in str(kwargs.get("core", "")):
            raise ValueError(f"the core {kwargs['core']!r} would import code; name it with rims_rl.register_core")
        make = POLICIES[about["policy"]]
        build = partial(make, observation_space, action_space, _no_schedule, use_sde=about["use_sde"], **kwargs)
        with torch.device("meta"):  # no memory is used before the sizes are known to be those of the file
            sizes = {name: weight.shape for name, weight in _weights(build()).items()}
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"{folder / 'policy.json'} does not describe a policy that can be built: {error}") from error
    _check_weights(folder / "policy.safetensors", weights, sizes)
    policy = build()
    policy.load_state_dict(weights, strict=False)  # names that stand for the same tensor are there once
    policy.to(device)
    policy.set_training_mode(False)
    return policy, about


def read_about(folder: Path) -> dict[str, Any]:
    """What ``policy.json`` says, checked for its form."""
    path = folder / "policy.json"
    try:
        about = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{folder} has no policy.json; is it the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("policy_kwargs"), dict):
        raise UserError(f"{path} is not a policy description of format {FORMAT}, which this version of rims-rl reads")
    return about


def _no_schedule(progress: float) -> float:
    return 0.0


def _weights(policy: MlpRimsPolicy) -> dict[str, torch.Tensor]:
    """Every tensor of the policy once, although its encoder goes by three names."""
    return {**dict(policy.named_parameters()), **dict(policy.named_buffers())}


def _check_weights(path: Path, weights: dict[str, torch.Tensor], sizes: dict[str, torch.Size]) -> None:
    if missing := sorted(set(sizes) ^ set(weights)):
        raise UserError(f"{path} does not fit its policy.json: {missing[0]!r} is in only one of them")
    for name, weight in weights.items():
        if weight.shape != sizes[name]:
            raise UserError(f"{path}: {name!r} must have shape {tuple(sizes[name])}, got {tuple(weight.shape)}")
        if weight.dtype != torch.float32:
            raise UserError(f"{path}: {name!r} must be float32, got {weight.dtype}")
        if not weight.isfinite().all():
            raise UserError(f"{path}: {name!r} holds values that are not finite numbers")


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A Gymnasium space as plain data."""
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {key: space_to_json(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Box):
        low, high = (_shorten(bound) for bound in (space.low, space.high))
        return {"type": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    raise UserError(f"a space of type {type(space).__name__} cannot be written down")


def space_from_json(data: dict[str, Any]) -> spaces.Space[Any]:
    """The space that :func:`space_to_json` wrote down."""
    kind = data["type"]
    if kind == "Dict":
        return spaces.Dict({key: space_from_json(part) for key, part in data["spaces"].items()})
    if kind == "Box":
        shape, dtype = tuple(int(size) for size in data["shape"]), np.dtype(data["dtype"])
        if np.prod(shape, dtype=float) > 2**26:
            raise ValueError(f"an observation of shape {shape} is too large")
        low, high = (np.broadcast_to(np.array(data[key], dtype=float), shape) for key in ("low", "high"))
        return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(data["n"]), start=int(data["start"]))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(data["nvec"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    raise ValueError(f"unknown space {kind!r}")


def _shorten(bound: np.ndarray) -> Any:
    """One number if all are equal. JSON has no infinity: it is written as text."""
    numbers = bound.astype(float)
    if numbers.size and (numbers == numbers.flat[0]).all():
        numbers = numbers.flat[0]
    return np.vectorize(lambda x: x if np.isfinite(x) else str(x), otypes=[object])(numbers).tolist()
