"""What a new agent takes over from a trained one: part by part, to train on, to keep as it is, or not at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rims_rl.agents.policies.rims_policies import PARTS, MlpRimsPolicy, part_of
from rims_rl.agents.saved.policy_files import weights_of
from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean
from rims_rl.core import RIM, RIMCell

TREATMENTS = ("finetune", "freeze", "reinit")
EVERYTHING = "encoder=finetune,core=finetune,heads=finetune"
SETTINGS = {  # that have to be equal, besides the sizes of weights
    "encoder": ["normalize"],
    "core": ["core", "num_rims", "num_active", "rim_size", "critic", "core_kwargs", "columns"],
    "heads": ["activation_fn"],
}


class Carry(NamedTuple):
    """How each part is treated; a part that is not named starts anew."""

    encoder: str = "reinit"
    core: str = "reinit"
    heads: str = "reinit"
    rims: dict[int, str] | None = None  # of the core: those that are carried over, and how; None: all of them

    def carries(self, part: str) -> bool:
        return getattr(self, part) != "reinit"

    @property
    def frozen_rims(self) -> list[int]:
        return [rim for rim, treatment in (self.rims or {}).items() if treatment == "freeze"]


class Agent(NamedTuple):
    """What has to fit."""

    policy: MlpRimsPolicy
    normalized: bool  # its observations
    actions: str | None  # what its actions mean, if that is known


def parse_carry(text: str) -> Carry:
    """``encoder=finetune,core=freeze,rims=0,2``: RIMs 0 and 2 as ``core`` says, the others anew. ``rims=0:freeze,2``
    gives RIM 0 a treatment of its own. What RIMs share goes as ``core`` says."""
    values: dict[str, Any] = {}
    rims: dict[int, str | None] = {}
    key = ""
    for word in text.split(","):
        if "=" in word:
            key, _, word = (piece.strip() for piece in word.partition("="))
        if key == "rims":
            index, _, treatment = word.strip().partition(":")
            if not index.isdecimal():
                raise UserError(
                    f"`carry` {text}: rims must be numbers, as in rims=0,2 or rims=0:freeze,2, got {word!r}"
                )
            rims[int(index)] = _treatment(treatment, text) if treatment else None
        elif key in PARTS and key not in values:
            values[key] = _treatment(word, text)
        else:
            hint = did_you_mean(key or word, [*PARTS, "rims"], f"write part=treatment, with {', '.join(PARTS)} or rims")
            raise UserError(f"`carry` {text}: {key or word!r} is no part, or is there twice; {hint}")
    carry = Carry(**values)
    if not any(carry.carries(part) for part in PARTS):
        raise UserError(f"`carry` {text} takes nothing over; give one of {', '.join(PARTS)} as finetune or freeze")
    if rims and not carry.carries("core"):
        raise UserError(f"`carry` {text}: rims are of the core, which starts anew; give core=finetune or core=freeze")
    return carry._replace(rims={k: how or carry.core for k, how in rims.items() if how != "reinit"}) if rims else carry


def check_carry(carry: Carry, here: Agent, there: Agent, where: str) -> None:
    """A UserError names every part of ``there`` that does not fit ``here``; ``where`` is what ``there`` is called."""
    policy, source = here.policy, there.policy
    if type(policy) is not type(source):
        raise UserError(
            f"{where} reads observations of another kind: it has policy={type(source).__name__!r}, and this run "
            f"{type(policy).__name__!r}"
        )
    if wrong := [
        f"{part}, {reason}" for part in PARTS if carry.carries(part) and (reason := _misfit(part, here, there))
    ]:
        raise UserError(f"{where} does not fit this environment and these settings: {'; '.join(wrong)}")
    if carry.rims is not None:
        if not isinstance(policy.core, RIM):
            raise UserError(f"`carry`: the core {policy.core_name!r} has no RIMs to choose from; leave out rims=")
        if (last := max(carry.rims, default=0)) >= (count := policy.num_rims):
            raise UserError(f"`carry`: there is no RIM {last}; with num_rims={count} the last is {count - 1}")
        if carry.frozen_rims and (decay := policy.optimizer.defaults.get("weight_decay")):
            raise UserError(
                f"`carry`: weight_decay={decay} of the optimizer would change frozen RIMs; leave it out, or freeze the "
                "whole core, with core=freeze and without rims="
            )


def carry_over(carry: Carry, policy: MlpRimsPolicy, source: MlpRimsPolicy) -> None:
    """Copy what ``carry`` names; :func:`check_carry` has said that it fits."""
    weights = weights_of(source)
    with torch.no_grad():
        for name, weight in weights_of(policy).items():
            if not carry.carries(part_of(name)):
                continue
            if carry.rims is None or not _has_slices(policy, name):
                weight.copy_(weights[name])
            else:
                weight[list(carry.rims)] = weights[name][list(carry.rims)]


def freeze(carry: Carry, policy: MlpRimsPolicy) -> None:
    """Let what ``carry`` freezes never change. Optimizers pass over weights without gradient, and a gradient of exactly
    zero leaves Adam's and RMSprop's weights as they are, to the bit."""
    for name, weight in policy.named_parameters():
        if carry.rims is not None and _has_slices(policy, name):
            if carry.frozen_rims:
                weight.register_hook(_Without(carry.frozen_rims))
        elif getattr(carry, part_of(name)) == "freeze":
            weight.requires_grad_(False)


def _misfit(part: str, here: Agent, there: Agent) -> str | None:
    """Why a part cannot be carried over: settings, or else the first weight, or else what actions mean."""
    ours, theirs = _settings(here), _settings(there)
    if keys := [key for key in SETTINGS[part] if ours[key] != theirs[key]]:
        return "with " + ", ".join(f"{key}={theirs[key]!r} there and {ours[key]!r} here" for key in keys)
    mine, other = (
        {name: tuple(weight.shape) for name, weight in weights_of(agent.policy).items() if part_of(name) == part}
        for agent in (here, there)
    )
    for name in [*mine, *(name for name in other if name not in mine)]:
        a, b = mine.get(name, "missing"), other.get(name, "missing")
        if a != b:
            return f"where {name!r} is {b} there, and {a} here"
    if part == "heads" and here.actions != there.actions:
        return f"because the actions are {there.actions} there, and {here.actions} here"
    return None


def _settings(agent: Agent) -> dict[str, Any]:
    parameters = agent.policy._get_constructor_parameters()
    return {**parameters, "normalize": agent.normalized}


class _Without:
    """A hook that takes away the gradient of some RIMs."""

    def __init__(self, rims: list[int]) -> None:
        self._rims = rims

    def __call__(self, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[self._rims] = 0
        return gradient


def _has_slices(policy: MlpRimsPolicy, name: str) -> bool:
    """Whether a weight has one slice for each RIM."""
    owner, _, weight = name.rpartition(".")
    cell = policy.get_submodule(owner)
    return isinstance(cell, RIMCell) and weight not in cell.shared_weights


def _treatment(word: str, text: str) -> str:
    if word.strip() not in TREATMENTS:
        raise UserError(f"`carry` {text}: {word.strip()!r} must be finetune, freeze or reinit")
    return word.strip()
