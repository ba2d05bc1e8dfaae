"""What there is to compare of a training: our runs, those of rl_zoo3, and monitor files of Stable-Baselines3."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from rims_rl.common.errors import UserError
from rims_rl.config.layers import flatten, read_mapping
from rims_rl.runs.folder import read_arguments, read_result
from rims_rl.runs.monitor_files import Episodes, monitor_files, read_episodes

# What two seeds of one setting may have different.
NOT_SETTINGS = {"seed", "device", "threads", "eval_freq", "eval_episodes", "checkpoint_freq", "keep_policies_every"}
# What makes an environment another one.
OF_ENV = {"game_mode", "difficulty", "observation", "distractors", "env_kwargs", "env_wrapper", "frame_stack"}
NOT_SETTINGS_OF_RL_ZOO3 = {
    "hyperparams",
    "trained_agent",
    "uuid",
    "vec_env",
    "verbose",
    "log_folder",
    "tensorboard_log",
}


@dataclass(frozen=True)
class Evaluated:
    """Scores of the episodes of one evaluation, after so many steps."""

    steps: int
    scores: np.ndarray


@dataclass(frozen=True)
class TrainedRun:
    path: Path
    env: str
    who: str  # the core, or another word for what was trained
    algo: str | None
    seed: int | None
    settings: dict[str, Any]  # all else that seeds of one setting have in common
    episodes: Episodes
    evaluations: list[Evaluated]
    finished: bool = True


def read_trained_run(path: Path) -> TrainedRun:
    """The run in a folder, or in one monitor file."""
    files = monitor_files(path)
    if not files:
        missing = "does not exist" if not path.exists() else "holds no monitor.csv"
        raise UserError(f"{path} {missing}; give the folder of a run, of rl_zoo3's too, or a monitor file")
    episodes = read_episodes(files)
    if not len(episodes):
        raise UserError(f"{path} has no finished episode: there is nothing to compare yet")
    if (path / "run.json").exists():
        return _read_ours(path, episodes)
    if path.is_dir() and (found := list(path.glob("*/args.yml"))):
        return _read_rl_zoo3(path, found[0], episodes)
    return _read_monitors(path, episodes)


def _read_ours(path: Path, episodes: Episodes) -> TrainedRun:
    arguments, config = read_arguments(path)
    settings = read_mapping(config)
    core = str(settings.pop("core", "?"))
    settings |= arguments.model_dump(mode="json", exclude=NOT_SETTINGS | OF_ENV | {"env", "algo"})
    result = read_result(path)
    if result is not None and result.steps > episodes.ends[-1]:
        # steps of episodes that have not ended would all be missing at the end
        ends = episodes.ends * (result.steps / episodes.ends[-1])
        ends[-1] = result.steps  # which rounding may have missed
        episodes = replace(episodes, ends=ends)
    made = arguments.model_dump(mode="json", include=OF_ENV, exclude_none=True)
    with_options = f" ({', '.join(f'{key}={value}' for key, value in flatten(made).items())})" if made else ""
    return TrainedRun(
        path,
        config.parent.name + with_options,
        core,
        arguments.algo,
        arguments.seed,
        flatten(settings),
        episodes,
        read_evaluations(path / "evaluations.npz"),
        result is not None and result.finished,
    )


def _read_rl_zoo3(path: Path, arguments: Path, episodes: Episodes) -> TrainedRun:
    asked, settings = _read_rl_zoo3_file(arguments), _read_rl_zoo3_file(arguments.with_name("config.yml"))
    env, algo = str(asked.get("env", arguments.parent.name)), str(asked.get("algo", path.parent.name))
    who, seed = str(settings.pop("policy", algo)), asked.get("seed")
    evaluations = read_evaluations(path / "evaluations.npz")
    return TrainedRun(
        path, env, who, algo, seed if isinstance(seed, int) else None, flatten(settings), episodes, evaluations
    )


def _read_monitors(path: Path, episodes: Episodes) -> TrainedRun:
    """Nobody says what was trained: folders whose names differ in a number at the end are seeds of the same."""
    name = (path.parent if path.is_file() else path).absolute().name
    numbered = re.fullmatch(r"(.+?)[_-]?(\d+)", name)
    who, seed = (numbered[1], int(numbered[2])) if numbered else (name, None)
    return TrainedRun(path, str(episodes.env_id or "an environment"), who, None, seed, {}, episodes, [])


def read_evaluations(path: Path) -> list[Evaluated]:
    """What Stable-Baselines3's EvalCallback wrote, or ours."""
    if not path.exists():
        return []
    try:
        with path.open("rb") as file, np.load(file) as data:  # numpy itself would leave a damaged file open
            pairs = zip(data["timesteps"].tolist(), data["results"].astype(float), strict=True)
            return [Evaluated(int(steps), scores) for steps, scores in pairs]
    except Exception as error:  # there is no end to how reading garbage can fail
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} is damaged ({reason}); remove it, and resuming the run writes it again") from error


class _PlainLoader(yaml.SafeLoader):
    """Reads what rl_zoo3 wrote with Python's own objects, such as OrderedDict, as plain data: nothing is made of it."""


def _plain(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", _plain)


def _read_rl_zoo3_file(path: Path) -> dict[str, Any]:
    """Its OrderedDict is a list of one list of pairs."""
    try:
        data = yaml.load(path.read_text(), _PlainLoader)
        pairs = dict(data[0] if isinstance(data, list) else data)
    except (OSError, ValueError, TypeError, IndexError, KeyError, RecursionError, yaml.YAMLError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} cannot be read ({reason}); give the monitor files themselves") from error
    return {str(key): value for key, value in pairs.items()}
