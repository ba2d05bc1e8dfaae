"""Experts that are known from a dataset of Minari: their actions, done again from the same seeds and looked at."""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rims_rl.common.errors import UserError
from rims_rl.envs.names import resolve
from rims_rl.envs.pictures import Pictured
from rims_rl.imitation.expert import Expert, check_action_space, check_spaces
from rims_rl.imitation.playing import Played, Report, Watched

REWARDS_DIFFER = 1e-3  # beyond rounding: another version of the environment, or chance that no seed decides


def load_minari_expert(dataset: str, env: str | None) -> Expert:
    """What a dataset says of itself. It has to be on this disk: ``minari download`` brings it there."""
    data = _load(dataset)
    spec = data.env_spec
    if env is None and spec is None:
        raise UserError(f"the dataset {dataset} does not say what is played in it; name it with `env`")
    name = env or spec.id
    arguments = {} if env is not None else _arguments(spec)
    fingerprint = hashlib.sha256(f"{dataset} {data.total_episodes} {data.total_steps}".encode()).hexdigest()[:16]
    played = resolve(name, **({"env_kwargs": arguments} if arguments else {}))
    check_action_space(data.action_space, dataset)
    return Expert(f"minari:{dataset}", name, played, data.action_space, fingerprint, None)


def _arguments(spec: EnvSpec) -> dict[str, Any]:
    """With which Gymnasium makes the environment of a dataset."""
    registered = gym.registry.get(spec.id)
    limit = spec.max_episode_steps
    usual = registered is None or registered.max_episode_steps == limit
    return dict(spec.kwargs) | ({} if usual else {"max_episode_steps": limit})


def replay_minari(dataset: str, expert: Expert, episodes: int, side: int, report: Report) -> Played:
    """The first episodes, played again: pictures of what happened, and the actions of the dataset."""
    data = _load(dataset)
    if data.total_episodes < episodes:
        raise UserError(f"episodes must be at most {data.total_episodes}, all that {dataset} has, got {episodes}")
    pictured = Pictured(expert.env, 1, 0, side)
    try:
        check_spaces(expert, pictured.envs)
        played = [_replay(pictured, dataset, each, data, report) for each in data.iterate_episodes(range(episodes))]
    finally:
        pictured.close()
    parts = (np.concatenate([getattr(watched, name) for watched, _ in played]) for name in Watched._fields)
    scores = [score for _, score in played]
    return Played(scores, [len(watched.starts) for watched, _ in played], Watched(*parts))


def _replay(pictured: Pictured, dataset: str, episode: Any, data: Any, report: Report) -> tuple[Watched, float]:
    where = f"episode {episode.id} of {dataset}"
    seed = next(iter(data.storage.get_episode_metadata([episode.id]))).get("seed")
    if seed is None:
        raise UserError(f"{where} has no seed, so that it cannot be played again and looked at")
    pictured.envs.seed(int(seed))
    pictured.envs.reset()
    pictures = []
    for action, reward in zip(episode.actions, episode.rewards, strict=True):
        pictures.append(pictured.pictures()[0])
        _, rewards, _, _ = pictured.envs.step(np.asarray(action)[None])
        if abs(float(rewards[0]) - float(reward)) > REWARDS_DIFFER:
            raise UserError(
                f"{where} gave a reward of {float(reward):g} at step {len(pictures)}, and {float(rewards[0]):g} when "
                f"it was played again: {pictured.env.id} is another version here, or not decided by its seed"
            )
        report(1)
    starts = np.zeros(len(pictures), bool)
    starts[0] = True
    return Watched(np.stack(pictures), np.asarray(episode.actions), starts), float(np.sum(episode.rewards))


def _load(dataset: str) -> Any:
    try:
        import minari  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError('datasets of Minari need its package: pip install "rims-rl[minari]"') from error
    try:
        return minari.load_dataset(dataset)
    except Exception as error:  # each kind of storage fails in its own way
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"the dataset {dataset} cannot be read ({reason}); `minari list local` names those on this disk, and "
            f"`minari download {dataset}` brings it"
        ) from error
