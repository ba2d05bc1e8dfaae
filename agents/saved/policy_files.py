"""Policies on disk without pickle: one ``.safetensors`` file with weights and, as metadata, how to build the rest.

In a run it is called ``policy.safetensors``, and ``policy.json`` is a copy of the description for people and other
programs; of a run of version 0.1, whose weights have no metadata, it is the description. Nothing in these files is ever
executed. Stable-Baselines3's ``.zip`` is a pickle: loading a stranger's runs their code.
"""

from __future__ import annotations

import inspect
import json
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from torch import nn

from rims_rl.agents.policies.rims_policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.agents.saved.description import (
    FORMAT,
    SMALL,
    Description,
    check_against_weights,
    check_description,
    space_from_json,
    space_to_json,
)
from rims_rl.agents.saved.normalization import statistics_of
from rims_rl.common.errors import Diverged, UserError
from rims_rl.common.files import replacing, write_json
from rims_rl.common.own_code import is_signed, sign
from rims_rl.core.registry import is_imported

KEY = "rims_rl"  # of the description in the metadata of a single file
POLICIES = {policy.__name__: policy for policy in (MlpRimsPolicy, CnnRimsPolicy, MultiInputRimsPolicy)}
ACTIVATIONS = {activation.__name__: activation for activation in (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU)}


def round_weights(policy: MlpRimsPolicy) -> None:
    """To the numbers that 16 bits hold (float16), in place, so that the policy's file is half as large."""
    policy.half().float()


def describe_policy(policy: MlpRimsPolicy, policy_kwargs: dict[str, Any], **others: Any) -> Description:
    """How to build ``policy``, and with ``others`` more fields of its description, such as ``env``.

    ``policy_kwargs`` are those that it was made with; optimizers among them are left out.
    """
    if type(policy).__name__ not in POLICIES:
        raise UserError(f"a {type(policy).__name__} cannot be written without pickle; use one of {', '.join(POLICIES)}")
    kwargs = {key: value for key, value in policy_kwargs.items() if not key.startswith("optimizer")}
    kwargs["core"] = policy.core_name
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = kwargs["activation_fn"].__name__
    description = {
        "format": FORMAT,
        "policy": type(policy).__name__,
        "policy_kwargs": kwargs,
        "observation_space": space_to_json(policy.observation_space),
        "action_space": space_to_json(policy.action_space),
        "use_sde": policy.use_sde,
        **others,
    }
    checked = check_description(description, "what is to be written without pickle")
    return checked.model_copy(update={"signature": sign(checked.what_is_signed())}) if checked.named_code() else checked


def save_policy(policy: MlpRimsPolicy, folder: Path, description: Description) -> None:
    """Write ``policy.safetensors`` and ``policy.json`` into ``folder``.

    A policy whose weights are not finite is :class:`Diverged`, and nothing is written.
    """
    save_shared(policy, folder / "policy.safetensors", description)
    write_json(folder / "policy.json", description.to_json())


def save_shared(policy: MlpRimsPolicy, path: Path, description: Description) -> None:
    """Write weights and description into one ``.safetensors`` file: in 16 bits, if nothing is lost by that."""
    weights = {name: weight.detach().contiguous() for name, weight in weights_of(policy).items()}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise Diverged(f"{name!r} of the policy holds numbers that are not finite")
    short = {name: weight.half() for name, weight in weights.items()}
    if all(weight.equal(short[name].float()) for name, weight in weights.items()):
        weights = short
    with replacing(path) as temporary:
        temporary.write_bytes(save(weights, {KEY: json.dumps(description.to_json())}))


def load_policy(path: Path, device: str = "cpu", trust: bool = False) -> tuple[MlpRimsPolicy, Description]:
    """A policy and its description. A UserError says what is wrong with it.

    ``path`` is the folder of a run, a ``.safetensors`` file that was exported or, only with ``trust``, a ``.zip`` of
    Stable-Baselines3.
    """
    if path.suffix == ".zip":
        return _load_zip(path, device, trust)
    if path.suffix in (".onnx", ".pt2"):
        raise UserError(f"{path} is made to be run elsewhere; give the folder of the run or a .safetensors file")
    file = path if path.suffix == ".safetensors" else path / "policy.safetensors"
    description = read_description(path)
    check_named_code(description, path, trust)
    try:
        weights = load_file(file, device=device)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{file} is damaged or not a safetensors file: {error}") from error
    kwargs = description.given_policy_kwargs()
    try:
        if "activation_fn" in kwargs:
            kwargs["activation_fn"] = ACTIVATIONS[kwargs["activation_fn"]]
        check_against_weights(description, weights, file.name)
        observation_space = space_from_json(description.observation_space.model_dump())
        action_space = space_from_json(description.action_space.model_dump())
        make = POLICIES[description.policy]
        build = partial(make, observation_space, action_space, _no_schedule, use_sde=description.use_sde, **kwargs)
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
    # which makes them float32; names that stand for the same tensor are there once
    policy.load_state_dict(weights, strict=False)
    policy.to(device)
    policy.set_training_mode(False)
    return policy, description


def check_named_code(description: Description, path: Path, trust: bool) -> None:
    """A UserError if playing the policy would import code of somebody's own: the user did not train it, has not
    imported that code, and does not ``trust`` it."""
    code = description.named_code()
    if not code or trust or is_signed(description.what_is_signed(), description.signature):
        return
    options, core = description.env_options, description.policy_kwargs.core
    module, colon, _ = (description.env or "").partition(":")
    modules = [*([module] if colon else []), *(options.gym_packages or [])]
    imported = all(each in sys.modules for each in modules) and ("." not in core or is_imported(core))
    if options.env_wrapper or not imported:
        raise UserError(
            f"{path} would import {' and '.join(code)}, and was not trained by you; give `trust` if you trust whoever "
            "made it, or import the modules first"
        )


def read_description(path: Path) -> Description:
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
        missing = shared or not path.exists()
        kind = "file" if shared else "folder"
        if not missing:
            raise UserError(f"{path} has no {file.name}; is it the folder of a run?") from None
        raise UserError(f"there is no {kind} {path}; give the folder of a run, such as logs/ppo/...") from None
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


def load_zip(path: Path, device: str, trust: bool) -> tuple[BasePolicy, dict[str, Any], dict[str, Any]]:
    """The policy of a whole Stable-Baselines3 model, of whatever algorithm; what it was made with; and ``env``,
    ``normalization`` and the like, as far as the files beside it tell. Its environment's name is that of the run or of
    the file."""
    if not trust:
        raise UserError(
            f"{path} is a pickle, and loading one can run any code; use the folder of the run or a .safetensors file, "
            "or give `trust` if you trust whoever made it"
        )
    if not path.exists():
        raise UserError(f"there is no file {path}; give the .zip of a model of Stable-Baselines3")
    try:
        data, parameters, _ = load_from_zip_file(path, device=device)
        assert data is not None
        make = data["policy_class"]
        sde = {"use_sde": data["use_sde"]} if "use_sde" in inspect.signature(make).parameters else {}
        policy = make(data["observation_space"], data["action_space"], _no_schedule, **{**sde, **data["policy_kwargs"]})
        policy.load_state_dict(parameters["policy"])
    except Exception as error:  # whatever is in the file
        raise UserError(f"{path} cannot be loaded as a model of Stable-Baselines3: {error}") from error
    policy.to(device)
    policy.set_training_mode(False)
    origin: dict[str, Any] = {"env": path.stem}
    if (path.parent / "policy.json").exists():
        origin = read_description(path.parent).to_json()
    origin = {key: origin[key] for key in ("env", "env_options", "algo", "seed") if key in origin}
    # where train puts it, and where rl_zoo3 does
    places = (path.parent / "vecnormalize.pkl", path.parent / path.stem / "vecnormalize.pkl")
    statistics = next((place for place in places if place.exists()), None)
    normalization = statistics and statistics_of(pickle.loads(statistics.read_bytes()))
    origin |= {"steps": data["num_timesteps"], "normalization": normalization}
    return policy, data["policy_kwargs"], origin


def _load_zip(path: Path, device: str, trust: bool) -> tuple[MlpRimsPolicy, Description]:
    policy, policy_kwargs, origin = load_zip(path, device, trust)
    described: Any = policy  # which insists on one of ours
    return described, describe_policy(described, policy_kwargs, **origin)


def _no_schedule(progress: float) -> float:
    return 0.0


def weights_of(policy: MlpRimsPolicy) -> dict[str, torch.Tensor]:
    """Every tensor that is saved of the policy, once, although its encoder goes by three names."""
    names = policy.state_dict().keys()
    return {**dict(policy.named_parameters()), **{name: b for name, b in policy.named_buffers() if name in names}}


def _check_weights(path: Path, weights: dict[str, torch.Tensor], sizes: dict[str, torch.Size]) -> None:
    if missing := sorted(set(sizes) ^ set(weights)):
        raise UserError(f"{path} does not fit its policy.json: {missing[0]!r} is in only one of them")
    for name, weight in weights.items():
        if weight.shape != sizes[name]:
            raise UserError(f"{path}: {name!r} must have shape {tuple(sizes[name])}, got {tuple(weight.shape)}")
        if weight.dtype not in (torch.float32, torch.float16):
            raise UserError(f"{path}: {name!r} must be float32 or float16, got {weight.dtype}")
        if not weight.isfinite().all():
            raise UserError(f"{path}: {name!r} holds values that are not finite numbers")
