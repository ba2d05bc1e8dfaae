"""Who is imitated: a run of ours, a model of Stable-Baselines3, or somebody in a dataset of Minari."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.agents.policies.action_masks import with_masks
from rims_rl.agents.saved.description import Normalization
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy, load_zip
from rims_rl.common.errors import UserError
from rims_rl.envs.names import Resolved, resolve
from rims_rl.imitation.playing import Actor
from rims_rl.runs.environment import resolve_saved

MINARI = "minari:"  # how the name of a dataset begins


@dataclass(frozen=True)
class Expert:
    """Somebody whose actions are to be learned."""

    name: str  # of the folder or file
    env_name: str  # which rims_rl.envs.names.resolve knows
    env: Resolved
    action_space: spaces.Space[Any]
    fingerprint: str  # of its weights, or of the dataset
    policy: Any  # of Stable-Baselines3, or None if it is only known from a dataset
    normalization: Normalization | None = None
    steps: int | None = None  # for which it was trained

    def prepared(self, envs: VecEnv) -> VecEnv:
        """``envs`` as the expert sees them."""
        return with_statistics(envs, self.normalization)


class ExpertActor:
    """An expert at play, with what it remembers of each copy of its environment."""

    def __init__(self, expert: Expert, envs: VecEnv, seed: int) -> None:
        torch.manual_seed(seed)  # of sampled actions
        self._policy: Any = with_masks(expert.policy, envs)
        self._deterministic = expert.env.deterministic
        self._state: Any = None

    def __call__(self, observations: Any, pictures: np.ndarray, starts: np.ndarray) -> np.ndarray:
        actions, self._state = self._policy.predict(
            observations, state=self._state, episode_start=starts, deterministic=self._deterministic
        )
        return np.asarray(actions)


class NoisyActor:
    """Somebody whose hand is unsteady, so that more is seen than one narrow path (Laskey et al., "DART", 2017).

    Vectors get Gaussian noise, whose standard deviation is ``noise`` times half the range of the action, or ``noise``
    itself where there is no limit; of numbers, a share of ``noise`` is drawn at random.
    """

    def __init__(self, actor: Actor, space: spaces.Space[Any], noise: float, seed: int) -> None:
        self._actor, self._space, self._noise = actor, space, noise
        self._random = np.random.default_rng((seed, 2))

    def __call__(self, observations: Any, pictures: np.ndarray, starts: np.ndarray) -> np.ndarray:
        actions, space = self._actor(observations, pictures, starts), self._space
        if isinstance(space, spaces.Discrete):
            drawn = space.start + self._random.integers(space.n, size=actions.shape)
            return np.where(self._random.random(actions.shape) < self._noise, drawn, actions)
        assert isinstance(space, spaces.Box)
        scale = (space.high - space.low) / 2 if space.is_bounded() else 1.0
        noise = self._noise * scale * self._random.standard_normal(actions.shape)
        return np.clip(actions + noise, space.low, space.high).astype(space.dtype)


def load_expert(source: str, env: str | None, trust: bool) -> Expert:
    """The expert in ``source``: the folder of a run, a ``.safetensors`` file, a ``.zip`` or ``minari:<dataset>``."""
    if source.startswith(MINARI):
        from rims_rl.imitation.minari_data import load_minari_expert  # Minari is an extra

        return load_minari_expert(source.removeprefix(MINARI), env)
    path = Path(source)
    return _from_zip(path, env, trust) if path.suffix == ".zip" else _from_run(path, env, trust)


def check_action_space(space: spaces.Space[Any], whose: str) -> None:
    """A UserError unless actions of this kind can be learned."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return
    if not isinstance(space, spaces.Discrete):
        raise UserError(f"{whose} has actions {space}, and imitation learns vectors (Box) and numbers (Discrete)")


def check_spaces(expert: Expert, envs: VecEnv) -> None:
    """A UserError unless the expert sees and does what there is in the environment that it is to be watched in."""
    remedy = "name one like that in which it was trained with `env`"
    if expert.action_space != envs.action_space:
        raise UserError(
            f"{expert.name} has actions {expert.action_space}, and {expert.env.id} takes {envs.action_space}; {remedy}"
        )
    if expert.policy is not None and _shape(expert.policy.observation_space) != _shape(envs.observation_space):
        raise UserError(
            f"{expert.name} sees {expert.policy.observation_space}, and {expert.env.id} shows "
            f"{envs.observation_space}; {remedy}"
        )


def _shape(space: spaces.Space[Any]) -> Any:
    """What must be the same, whatever the limits; images may have their channels first or last."""
    if isinstance(space, spaces.Dict):
        return {key: _shape(part) for key, part in space.spaces.items()}
    return type(space), sorted(space.shape or ())


def _from_run(path: Path, env: str | None, trust: bool) -> Expert:
    policy, description = load_policy(path, trust=trust)
    played = resolve_saved(description) if env is None else resolve(env)  # plain, without the wrappers of its training
    return Expert(
        path.resolve().name, env or str(description.env), played, policy.action_space, _fingerprint(policy), policy,
        description.normalization, description.steps,
    )  # fmt: skip


def _from_zip(path: Path, env: str | None, trust: bool) -> Expert:
    policy, _, origin = load_zip(path, "cpu", trust)
    try:
        played = resolve(env or origin["env"], **(origin.get("env_options", {}) if env is None else {}))
    except UserError as error:
        if env is not None:
            raise
        raise UserError(f"{path} does not say what it plays ({error}); name it with `env`") from error
    return Expert(
        path.name, env or origin["env"], played, policy.action_space, _fingerprint(policy), policy,
        origin["normalization"], origin["steps"],
    )  # fmt: skip


def _fingerprint(policy: Any) -> str:
    """Of all weights, whatever file they are in."""
    found = hashlib.sha256()
    for name, weight in sorted(policy.state_dict().items()):
        found.update(name.encode())
        found.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]
