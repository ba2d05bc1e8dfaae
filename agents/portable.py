"""Policies on disk without pickle: weights in ``policy.safetensors``, and in ``policy.json`` how to build the rest.

To share a policy, both go into one ``.safetensors`` file. Nothing in these files is ever executed. Stable-Baselines3's
``.zip`` is a pickle: loading a stranger's runs their code.
"""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from stable_baselines3.common.save_util import load_from_zip_file
from torch import nn

from rims_rl.agents.policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.envs.normalise import statistics_to_json
from rims_rl.errors import UserError
from rims_rl.files import replacing
from rims_rl.results import write_json

FORMAT = 1
KEY = "rims_rl"  # of the description in the metadata of a single file
POLICIES = {policy.__name__: policy for policy in (MlpRimsPolicy, CnnRimsPolicy, MultiInputRimsPolicy)}
ACTIVATIONS = {activation.__name__: activation for activation in (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU)}


def save_policy(policy: MlpRimsPolicy, folder: Path, policy_kwargs: dict[str, Any], **about: Any) -> None:
    """Write ``policy.safetensors`` and ``policy.json`` into ``folder``; ``about`` is kept in the latter as it is.

    ``policy_kwargs`` are those the policy was made with, without optimizers.
    """
    description = _describe(policy, policy_kwargs, **about)
    _save_weights(policy, folder / "policy.safetensors")
    write_json(folder / "policy.json", description)


def save_shared(policy: MlpRimsPolicy, path: Path, about: dict[str, Any]) -> None:
    """Write weights and ``about``, which :func:`load_policy` gave, into one ``.safetensors`` file."""
    _save_weights(policy, path, {KEY: json.dumps(about)})


def load_policy(path: Path, device: str = "cpu", trust: bool = False) -> tuple[MlpRimsPolicy, dict[str, Any]]:
    """A policy and everything its description says. A UserError says what is wrong with it.

    ``path`` is the folder of a run, a ``.safetensors`` file that was exported or, only with ``trust``, a ``.zip`` of
    Stable-Baselines3.
    """
    if path.suffix == ".zip":
        return _load_zip(path, device, trust)
    if path.suffix in (".onnx", ".pt2"):
        raise UserError(f"{path} is made to be run elsewhere; give the folder of the run or a .safetensors file")
    if path.suffix == ".safetensors":
        file, about = path, _read_shared(path)
    else:
        file, about = path / "policy.safetensors", read_about(path)
    try:
        weights = load_file(file, device=device)
    except FileNotFoundError:
        raise UserError(f"{path} has no policy.safetensors; is it the folder of a run?") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{file} is damaged or not a safetensors file: {error}") from error
    kwargs = dict(about["policy_kwargs"])
    try:
        if "activation_fn" in kwargs:
            kwargs["activation_fn"] = ACTIVATIONS[kwargs["activation_fn"]]
        observation_space, action_space = (space_from_json(about[key]) for key in ("observation_space", "action_space"))
        if "." in str(kwargs.get("core", "")):
            raise ValueError(f"the core {kwargs['core']!r} would import code; name it with rims_rl.register_core")
        if max(kwargs.get(key) or 1 for key in ("num_layers", "n_lstm_layers")) > len(weights):
            raise ValueError(f"it has more layers than the {len(weights)} weights of {file.name}")
        make = POLICIES[about["policy"]]
        build = partial(make, observation_space, action_space, _no_schedule, use_sde=about["use_sde"], **kwargs)
        with torch.device("meta"):  # no memory is used before the sizes are known to be those of the file
            sizes = {name: weight.shape for name, weight in weights_of(build()).items()}
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        where = path if path == file else path / "policy.json"
        raise UserError(f"{where} does not describe a policy that can be built: {error}") from error
    _check_weights(file, weights, sizes)
    policy = build()
    policy.load_state_dict(weights, strict=False)  # names that stand for the same tensor are there once
    policy.to(device)
    policy.set_training_mode(False)
    return policy, about


def read_about(folder: Path) -> dict[str, Any]:
    """What ``policy.json`` says, checked for its form."""
    path = folder / "policy.json"
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UserError(f"{folder} has no policy.json; is it the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return _parse(text, path)


def _read_shared(path: Path) -> dict[str, Any]:
    """What a single file says in its metadata."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error
    if KEY not in metadata:
        raise UserError(
            f"{path} has weights but no description of the policy; give the folder of the run, or a file that "
            "`rims-rl export --format safetensors` wrote"
        )
    return _parse(metadata[KEY], path)


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("policy_kwargs"), dict):
        raise UserError(f"{path} is not a policy description of format {FORMAT}, which this version of rims-rl reads")
    return about


def _load_zip(path: Path, device: str, trust: bool) -> tuple[MlpRimsPolicy, dict[str, Any]]:
    """The policy of a whole Stable-Baselines3 model. Its environment's name is that of the run or of the file."""
    if not trust:
        raise UserError(
            f"{path} is a pickle, and loading one can run any code; use the folder of the run or a .safetensors file, "
            "or add --trust if you trust whoever made it"
        )
    try:
        data, parameters, _ = load_from_zip_file(path, device=device)
        assert data is not None
        policy = data["policy_class"](
            data["observation_space"], data["action_space"], _no_schedule, use_sde=data["use_sde"],
            **data["policy_kwargs"],
        )  # fmt: skip
        policy.load_state_dict(parameters["policy"])
    except Exception as error:  # whatever is in the file
        raise UserError(f"{path} cannot be loaded as a model of Stable-Baselines3: {error}") from error
    policy.to(device)
    policy.set_training_mode(False)
    beside = read_about(path.parent) if (path.parent / "policy.json").exists() else {"env": path.stem}
    about = {key: beside[key] for key in ("env", "env_options", "algo", "seed") if key in beside}
    about["steps"] = data["num_timesteps"]
    # where train puts it, and where rl_zoo3 does
    places = (path.parent / "vecnormalize.pkl", path.parent / path.stem / "vecnormalize.pkl")
    statistics = next((place for place in places if place.exists()), None)
    about["normalisation"] = statistics and statistics_to_json(pickle.loads(statistics.read_bytes()))
    return policy, _describe(policy, data["policy_kwargs"], **about)


def _describe(policy: MlpRimsPolicy, policy_kwargs: dict[str, Any], **about: Any) -> dict[str, Any]:
    """How to build ``policy``, as plain data."""
    if type(policy).__name__ not in POLICIES:
        raise UserError(f"a {type(policy).__name__} cannot be written without pickle; use one of {', '.join(POLICIES)}")
    kwargs = {key: value for key, value in policy_kwargs.items() if not key.startswith("optimizer")}
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = kwargs["activation_fn"].__name__
    return {
        "format": FORMAT,
        "policy": type(policy).__name__,
        "policy_kwargs": kwargs,
        "observation_space": space_to_json(policy.observation_space),
        "action_space": space_to_json(policy.action_space),
        "use_sde": policy.use_sde,
        **about,
    }


def _save_weights(policy: MlpRimsPolicy, path: Path, metadata: dict[str, str] | None = None) -> None:
    weights = save({name: weight.detach().contiguous() for name, weight in weights_of(policy).items()}, metadata)
    with replacing(path) as temporary:
        temporary.write_bytes(weights)


def _no_schedule(progress: float) -> float:
    return 0.0


def weights_of(policy: MlpRimsPolicy) -> dict[str, torch.Tensor]:
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
