"""Hyperparameters of an environment: the YAML files of ``zoo_configs/``, a user's file and single values, in layers.

The layers: ``default`` -> that of its family (``atari``, ``minigrid``, ...), or else the policy for its observations ->
the environment's section -> the same of the user's file -> single values.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rims_rl.common.errors import UserError
from rims_rl.common.own_code import import_path
from rims_rl.common.suggestions import did_you_mean
from rims_rl.config.layers import Layer, flatten, parse_overrides, read_mapping, shipped_sections, validate
from rims_rl.config.policy_choice import policy_layer
from rims_rl.config.training_config import ALGORITHMS, TrainConfig, is_path
from rims_rl.envs.names import Resolved, resolve

__all__ = [
    "Loaded", "all_configs", "human_scores", "load", "load_saved", "paper_scores",
]  # fmt: skip

SHARED_SECTIONS = ("default", "atari", "minigrid", "popgym", "recall")


class Loaded(NamedTuple):
    config: TrainConfig
    sources: dict[str, str]  # key, with dots inside mappings -> "ppo.yml: atari", the user's file, or `settings`


def load(
    env: str | Resolved,
    algo: str,
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    layers: Sequence[Layer] = (),
) -> Loaded:
    """What training ``algo`` on ``env`` uses, and where each value comes from.

    Args:
        env: a name that :func:`rims_rl.envs.names.resolve` knows, or what it stands for; options do not matter.
        algo: ``"ppo"`` or ``"a2c"``.
        file: a user's YAML file: keys and values, or sections like those of ``zoo_configs/``.
        overrides: ``key=value``, with the value in YAML and dots for keys of mappings: ``policy_kwargs.net_arch=[64]``.
        layers: more of them, such as a suite has, after the file and before the overrides.

    Raises:
        UserError: one sentence that names the file or `settings`, the key, the value, and what would be right.
    """
    model, resolved = _model(algo), resolve(env) if isinstance(env, str) else env
    shipped = shipped_sections(f"{algo}.yml")
    all_layers = [(f"{algo}.yml: {name}", shipped[name]) for name in _applying(shipped, resolved)]
    if resolved.family is None:
        all_layers.insert(1, policy_layer(resolved))
    if file is not None:
        all_layers += _user_layers(file, model, resolved)
    all_layers += layers
    if overrides:
        all_layers.append(("`settings`", parse_overrides(overrides)))
    return _validated(model, all_layers)


def load_saved(file: Path, algo: str, changes: dict[str, Any] | None = None) -> TrainConfig:
    """What a run's ``config.yml`` says, which holds every key of its version, whatever the zoo says today."""
    model, saved = _model(algo), read_mapping(file)
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    if missing := required - set(saved):
        raise UserError(f"{file} lacks the key {min(missing)}, so that the run cannot be resumed; add it")
    # what it names is imported when the model is built, and not by those who only want to read
    return _validated(model, [(str(file), saved), ("`settings`", changes or {})], imports=False).config


def paper_scores() -> dict[str, dict[str, float]]:
    """The paper's Atari table: game -> its scores ``rims`` and ``lstm``, and what the paper prints after "±" as
    ``rims_error`` and ``lstm_error``."""
    table = shipped_sections("atari_scores.yml")
    return {game: {column: float(score) for column, score in row.items()} for game, row in table.items()}


def human_scores() -> dict[str, dict[str, float]]:
    """Game -> what ``random`` play and a ``human`` tester score."""
    return dict(shipped_sections("atari_human.yml"))


def all_configs() -> Iterator[tuple[str, str, TrainConfig]]:
    """Every section of every algorithm's file, with the sections below it."""
    for algo, model in ALGORITHMS.items():
        sections = shipped_sections(f"{algo}.yml")
        for name in sections:
            if name in SHARED_SECTIONS:
                below = dict.fromkeys(("default", name))
                yield algo, name, _validated(model, [(f"{algo}.yml: {part}", sections[part]) for part in below]).config
            else:
                yield algo, name, load(name, algo).config


def _user_layers(file: Path, model: type[TrainConfig], resolved: Resolved) -> list[Layer]:
    """A user's file has sections if it holds only mappings and none of them is called like a key."""
    data = read_mapping(file)
    if set(data) & set(model.model_fields) or not all(isinstance(value, dict) for value in data.values()):
        return [(str(file), data)]
    for name in data:
        _check_section(str(name), file, model)
    applying = _applying(data, resolved)
    if not applying:
        raise UserError(
            f"{file} has no section for {resolved.name}, only {', '.join(data)}; name one {resolved.name} or default"
        )
    return [(f"{file}: {name}", data[name]) for name in applying]


def _check_section(name: str, file: Path, model: type[TrainConfig]) -> None:
    if name in SHARED_SECTIONS:
        return
    try:
        resolve(name)
    except UserError as error:
        hint = did_you_mean(name, [*SHARED_SECTIONS, *model.model_fields], str(error))
        raise UserError(f"{file}: {name!r} is neither a key nor a section; {hint}") from error


def _applying(sections: dict[str, Any], resolved: Resolved) -> list[str]:
    """The names of the sections that hold for an environment, the most special last."""
    shared = ("default", resolved.family)
    own = [name for name in sections if name not in SHARED_SECTIONS and resolve(name).name == resolved.name]
    return [name for name in shared if name and name in sections] + own


def _model(algo: str) -> type[TrainConfig]:
    if algo not in ALGORITHMS:
        raise UserError(f"`algo`: there is no algorithm called {algo!r}; give {' or '.join(ALGORITHMS)}")
    return ALGORITHMS[algo]


def _validated(model: type[TrainConfig], layers: Iterable[Layer], imports: bool = True) -> Loaded:
    config, sources = validate(model, layers, _algorithms_with)
    _check_policy_kwargs(config, sources, imports)
    _check_sizes(config, sources)
    return Loaded(config, {key: sources.get(key, "its default") for key in flatten(config.model_dump())})


def _algorithms_with(key: str) -> str | None:
    others = [algo for algo, other in ALGORITHMS.items() if key in other.model_fields]
    return f"only {others[0]} has it" if others else None


def _check_policy_kwargs(config: TrainConfig, sources: dict[str, str], imports: bool) -> None:
    if not config.policy_kwargs:
        return  # without importing torch
    known = _policy_options(config.policy)
    for key, value in config.policy_kwargs.items():
        name = f"policy_kwargs.{key}"
        where = next(source for other, source in sources.items() if f"{other}.".startswith(f"{name}."))
        if key in type(config).model_fields:
            raise UserError(f"{where}: write {key} instead of {name} (value {value!r}): it is a key of its own")
        if key not in known:
            hint = did_you_mean(key, known, f"it takes {', '.join(known)}")
            raise UserError(f"{where}: {config.policy} takes no {name} (value {value!r}); {hint}")
        if imports and is_path(key, value):
            try:
                found = import_path(value, name)
            except UserError as error:
                raise UserError(f"{where}: {error}") from error
            if not callable(found):
                raise UserError(f"{where}: {name} must be a class or function such as torch.nn.ReLU, got {value!r}")


def _policy_options(policy: str) -> list[str]:
    """What a policy's constructor takes besides spaces, schedule and the keys of :class:`TrainConfig`."""
    from stable_baselines3.common.policies import ActorCriticPolicy

    from rims_rl import agents

    # sb3-contrib's class in between takes LSTM sizes, for which we have keys of our own
    classes = [agents.MlpRimsPolicy, getattr(agents, policy), ActorCriticPolicy]
    names = {name for each in classes for name in inspect.signature(each).parameters}
    given = {"observation_space", "action_space", "lr_schedule", "kwargs", *TrainConfig.model_fields}
    return sorted(names - given)


def _check_sizes(config: TrainConfig, sources: dict[str, str]) -> None:
    """What fits alone may not fit together. The algorithms take more, with a warning; here minibatches are equal, so
    that runs compare."""
    rollout, batch = config.n_steps * config.n_envs, config.minibatch
    if rollout % batch:
        fitting = max(size for size in range(1, batch + 1) if rollout % size == 0)
        raise UserError(
            f"{sources['batch_size']}: batch_size must divide n_steps * n_envs = {config.n_steps} * {config.n_envs} = "
            f"{rollout}, got {batch}; {fitting} would do"
        )
    longest = math.gcd(config.n_steps, batch)
    if config.sequence_length is not None and longest % config.sequence_length:
        raise UserError(
            f"{sources['sequence_length']}: sequence_length must divide n_steps = {config.n_steps} and the minibatch "
            f"of {batch} steps, got {config.sequence_length}; {longest} would do"
        )
    if config.core in ("rims", "rims-robust", "rims-listen") and config.num_active > config.num_rims:
        raise UserError(
            f"{sources['num_active']}: num_active must be at most num_rims = {config.num_rims} "
            f"({sources['num_rims']}), got {config.num_active}"
        )
