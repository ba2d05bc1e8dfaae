"""Variants of an environment, in which a policy that was trained in one of them is tested."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_wrapper

from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean
from rims_rl.envs.atari.distractors import Distractors
from rims_rl.envs.atari.sprites import DISTRACTORS
from rims_rl.envs.names import Resolved, resolve
from rims_rl.envs.registration import PICKUPS, RECALLS


def variants_of(env: Resolved) -> dict[str, Resolved]:
    """Every variant of ``env`` by name, such as ``"novel-colour"``; ``env`` itself is one of them."""
    if env.id.startswith("RimsRL/Pickup-"):
        return {_name(variant): resolve(f"Pickup{variant}", **env.options) for variant in PICKUPS}
    if env.rom is not None:
        return {name or "clean": env._replace(distractors=name) for name in (None, *DISTRACTORS)}
    if env.family == "recall":
        return {_name(variant or "Known"): resolve(f"Recall{variant}") for variant in RECALLS}
    raise UserError(f"{env.id} has no variants; pick-up tasks, such as PickupKnown, Recall and Atari games have")


def choose_variants(env: Resolved, names: Sequence[str]) -> dict[str, Resolved]:
    """The variants that are asked for, in that order; ``["all"]`` is all of them."""
    known = variants_of(env)
    if list(names) == ["all"]:
        return known
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"it has {', '.join(known)}; or give all", count=3)
            raise UserError(f"{env.name} has no variant {name!r}; {hint}")
    return {name: known[name] for name in names}


# Novel distractors never share the target's colour, or shape, or the token of a cue, and are easier for that alone:
# known ones of which the same is true are what they are compared with.
CONTROLS = {
    "novel-colour": "control-colour",
    "novel-shape": "control-shape",
    "novel": "control",
    "novel-loud": "control-loud",
}


def is_novel(name: str) -> bool:
    """Whether a variant has distractors that the others do not have."""
    return "novel" in name or name.startswith("new-")


def endings_of(env: Resolved) -> tuple[str, ...]:
    """How an episode may end without success, where there are several ways: values of ``info["outcome"]``."""
    return ("wrong pick", "time-out") if env.id.startswith("RimsRL/Pickup-") else ()


def settings_of(env: Resolved, envs: VecEnv) -> dict[str, Any]:
    """With what ``envs`` are really played, read from the environments themselves after a reset."""
    if env.observation is not None:
        return {"id": env.id, "observation": envs.get_attr("image")[0], **envs.get_attr("settings")[0]}
    if env.family == "recall":
        return {"id": env.id, **envs.get_attr("settings")[0]}
    over = unwrap_vec_wrapper(envs, Distractors)
    made = envs.get_attr("settings")[0] if env.backend == "ale" else dict(envs.get_attr("spec")[0].kwargs)
    return {"id": env.id, "backend": env.backend, **made, "distractors": over and over.overlay.sets}


def _name(variant: str) -> str:
    """``NovelColour`` -> ``novel-colour``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", variant).lower()
