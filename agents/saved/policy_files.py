"""Policies on disk without pickle: one ``.safetensors`` file with weights and, as metadata, how to build the rest.

In a run it is called ``policy.safetensors``, and ``policy.json`` is a copy of the description for people and other
programs; of a run of version 0.1, whose weights have no metadata, it is the description. Nothing in these files is ever
executed. Stable-Baselines3's ``.zip`` is a pickle: loading a stranger's runs their code.
"""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from stable_baselines3.common.save_util import load_from_zip_file
from torch import nn

from rims_rl.agents.policies.rims_policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.agents.saved.description import (
    FORMAT,
    SMALL,
    check_against_weights,
    check_description,
    space_from_json,
    space_to_json,
)
from rims_rl.agents.saved.normalization import statistics_to_json
from rims_rl.common.errors import Diverged, UserError
from rims_rl.common.files import replacing, write_json

KEY = "rims_rl"  # of the description in the metadata of a single file
POLICIES = {policy.__name__: policy for policy in (MlpRimsPolicy, CnnRimsPolicy, MultiInputRimsPolicy)}
ACTIVATIONS = {activation.__name__: activation for activation in (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU)}


def save_policy(policy: MlpRimsPolicy, folder: Path, policy_kwargs: dict[str, Any], **about: Any) -> None:
    """Write ``policy.safetensors`` and ``policy.json`` into ``folder``; ``about`` is kept in the description as it is.

    ``policy_kwargs`` are those the policy was made with, without optimizers. A policy whose weights are not finite is
    :class:`Diverged`, and nothing is written.
    """
    description = _describe(policy, policy_kwargs, **about)
    save_shared(policy, folder / "policy.safetensors", description)
    write_json(folder / "policy.json", description)


def save_shared(policy: MlpRimsPolicy, path: Path, about: dict[str, Any]) -> None:
    """Write weights and ``about``, which :func:`load_policy` gave, into one ``.safetensors`` file."""
    weights = {name: weight.detach().contiguous() for name, weight in weights_of(policy).items()}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise Diverged(f"{name!r} of the policy holds numbers that are not finite")
    with replacing(path) as temporary:
        temporary.write_bytes(save(weights, {KEY: json.dumps(about)}))


def load_policy(path: Path, device: str = "cpu", trust: bool = False) -> tuple[MlpRimsPolicy, dict[str, Any]]:
    """A policy and everything its description says. A UserError says what is wrong with it.

    ``path`` is the folder of a run, a ``.safetensors`` file that was exported or, only with ``trust``, a ``.zip`` of
    Stable-Baselines3.
    """
    if path.suffix == ".zip":
        return _load_zip(path, device, trust)
    if path.suffix in (".onnx", ".pt2"):
        raise UserError(f"{path} is made to be run elsewhere; give the folder of the run or a .safetensors file")
    file = path if path.suffix == ".safetensors" else path / "policy.safetensors"
    about = read_about(path)
    try:
        weights = load_file(file, device=device)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{file} is damaged or not a safetensors file: {error}") from error
    kwargs = dict(about["policy_kwargs"])
    try:
        if "activation_fn" in kwargs:
            kwargs["activation_fn"] = ACTIVATIONS[kwargs["activation_fn"]]
        if "." in kwargs.get("core", ""):
            raise ValueError(f"the core {kwargs['core']!r} would import code; name it with rims_rl.register_core")
        check_against_weights(about, weights, file.name)
        observation_space, action_space = (space_from_json(about[key]) for key in ("observation_space", "action_space"))
        make = POLICIES[about["policy"]]
        build = partial(make, observation_space, action_space, _no_schedule, use_sde=about["use_sde"], **kwargs)
        with torch.device("meta"):  # no memory is used before the sizes are known to be those of the file
            policy = build()
        sizes = {name: weight.shape for name, weight in weights_of(policy).items()}
        if (width := policy.lstm_hidden_state_shape[-1]) > max(SMALL, sum(map(torch.Tensor.numel, weights.values()))):
            raise ValueError(f"a state of {width:,} numbers is too large for {file.name}")
    except Exception as error:  # there is no end to what a policy cannot be built from
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} does not describe a policy that can be built: {reason}") from error
    _check_weights(file, weights, sizes)
    policy = build()
    policy.load_state_dict(weights, strict=False)  # names that stand for the same tensor are there once
    policy.to(device)
    policy.set_training_mode(False)
    return policy, about


def read_about(path: Path) -> dict[str, Any]:
    """What a policy's ``.safetensors`` file, or that in the folder of a run, says of itself, checked for its form."""
    shared = path.suffix == ".safetensors"
    file, beside = (path, None) if shared else (path / "policy.safetensors", path / "policy.json")
    try:
        with safe_open(file, "pt") as weights:
            text = (weights.metadata() or {}).get(KEY)
        if text is None and beside is not None:
            file = beside
            text = file.read_text()
        data = None if text is None else json.loads(text)
    except FileNotFoundError:
        sentence = f"there is no file {path}" if shared else f"{path} has no {file.name}; is it the folder of a run?"
        raise UserError(sentence) from None
    except SafetensorError as error:
        raise UserError(f"{file} is damaged or not a safetensors file: {error}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if text is None:
        raise UserError(
            f"{path} has weights but no description of the policy; give the folder of the run, or a file that "
            "was exported as safetensors"
        )
    return check_description(data, str(file))


def _load_zip(path: Path, device: str, trust: bool) -> tuple[MlpRimsPolicy, dict[str, Any]]:
    """The policy of a whole Stable-Baselines3 model. Its environment's name is that of the run or of the file."""
    if not trust:
        raise UserError(
            f"{path} is a pickle, and loading one can run any code; use the folder of the run or a .safetensors file, "
            "or give `trust` if you trust whoever made it"
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
    description = {
        "format": FORMAT,
        "policy": type(policy).__name__,
        "policy_kwargs": kwargs,
        "observation_space": space_to_json(policy.observation_space),
        "action_space": space_to_json(policy.action_space),
        "use_sde": policy.use_sde,
        **about,
    }
    return check_description(description, "what is to be written without pickle")


def _no_schedule(progress: float) -> float:
    return 0.0


def weights_of(policy: MlpRimsPolicy) -> dict[str, torch.Tensor]:
    """Every tensor that is saved of the policy, once, although its encoder goes by three names."""
    saved = policy.state_dict().keys()
    return {**dict(policy.named_parameters()), **{name: b for name, b in policy.named_buffers() if name in saved}}


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
