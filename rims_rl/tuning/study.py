"""A search for hyperparameters: plans its trials, and writes what was found.

::

    <logdir>/tune/<name>/search.json                what is searched for
    <logdir>/tune/<name>/study.db                   Optuna's own, unless there is another storage
    <logdir>/tune/<name>/results/, trials/          one file and one folder with a run for each trial
    <logdir>/tune/<name>/<core>/best.yml            the best settings, for ``train --config``
    <logdir>/tune/<name>/<core>/trials.json         all trials
    <logdir>/tune/<name>/<core>/history.png, importance.png
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from filelock import FileLock
from matplotlib.figure import Figure
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from rims_rl.common.errors import UserError
from rims_rl.common.figures import save_figure
from rims_rl.common.files import replacing, write_json
from rims_rl.config import zoo
from rims_rl.config.layers import flatten, read_mapping, unflatten
from rims_rl.core.registry import core_factory, make_core
from rims_rl.jobs.experiment import Experiment
from rims_rl.runs.provenance import provenance
from rims_rl.training.train import resolve_arguments
from rims_rl.tuning.options import TuneOptions
from rims_rl.tuning.search_space import read_space
from rims_rl.tuning.trial_job import TrialJob, open_study, trial_record


@dataclass(frozen=True)
class Found:
    """Of one core. ``best`` is the record of a trial, and None if none came to its end."""

    core: str
    states: dict[str, int]  # complete, pruned, ... -> how many trials
    best: dict[str, Any] | None
    importance: dict[str, float]
    folder: Path


def plan_search(options: TuneOptions) -> Experiment:
    """The trials of all cores in turn, as jobs. Asked again for the same, it is the same search, with more trials
    maybe."""
    env = resolve_arguments(options)
    name = options.name or f"{env.name}_{options.algo}"
    folder = (options.logdir / "tune" / name).absolute()
    settings = _settings(options)
    steps = zoo.load(env, options.algo, layers=[("`settings`", settings)]).config.n_timesteps
    spaces = {core: read_space(options.algo, core, options.space) for core in options.cores}
    if options.callbacks:
        raise UserError("`callbacks` are of one training; leave them out of a search")
    for core, space in spaces.items():
        _check_keys(options, settings | {"core": core}, space)
    evaluated = {"eval_freq": max(1, steps // options.evaluations), "checkpoint_freq": max(1, steps // 4)}
    arguments = options.arguments().model_dump(exclude_defaults=True, exclude={"threads"}) | evaluated
    definition = {
        "name": name,
        "steps": steps,
        "sampler": options.sampler,
        "pruner": options.pruner,
        "arguments": arguments | {"algo": options.algo},
    }
    definitions = {
        core: {**definition, "settings": settings | {"core": core}, "space": spaces[core]} for core in spaces
    }
    _check_same(folder / "search.json", definitions)
    storage = options.storage or f"sqlite:///{folder / 'study.db'}"
    jobs = [
        TrialJob(env.name, core, number, storage, definitions[core] | {"number": number})
        for number in range(options.trials)
        for core in options.cores
    ]
    with FileLock(folder / ".lock"):  # two commands that begin together must not both make the database
        for job in jobs[: len(options.cores)]:
            open_study(job)  # a storage that cannot be used is to be known at once
    return Experiment(name, f"{options.trials} trials of {env.name}", jobs, folder / "results", folder / "trials")


def write_found(experiment: Experiment) -> list[Found]:
    """What trials have found until now, as files and pictures for each core."""
    firsts: dict[str, TrialJob] = {}
    for job in experiment.jobs:
        assert isinstance(job, TrialJob)
        firsts.setdefault(job.core, job)
    return [_write_core(job, experiment.folder.parent / job.core) for job in firsts.values()]


def _write_core(job: TrialJob, folder: Path) -> Found:
    study = open_study(job)
    records = [trial_record(trial) for trial in study.trials]
    states = {state: sum(record["state"] == state for record in records) for state in ("complete", "pruned", "fail")}
    done = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    best = trial_record(study.best_trial) if done else None
    drawn = [key for key in job.definition["space"] if len({repr(trial.params[key]) for trial in done}) > 1]
    importance = (
        get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()) if len(done) > 3 and drawn else {}
    )
    data = {"search": job.definition, "best": best, "importance": importance, "trials": records, **provenance()}
    write_json(folder / "trials.json", data)
    save_figure(_draw_history(records, f"{job.name_of_env}, {job.core}"), folder / "history.png")
    if importance:
        save_figure(_draw_importance(importance), folder / "importance.png")
    if best is not None:
        _write_best(job, best, folder / "best.yml")
    return Found(job.core, states, best, importance, folder)


def _write_best(job: TrialJob, best: dict[str, Any], file: Path) -> None:
    """All that was said of the search, and what the best trial adds."""
    settings = flatten(job.definition["settings"]) | best["settings"]
    algo, trial = job.definition["arguments"]["algo"], best["number"]
    text = f"# The best of a search: {job.name_of_env}, {algo}, trial {trial}, score {best['value']:.6g} after "
    text += f"{job.steps:,} steps.\n{yaml.safe_dump(unflatten(settings), sort_keys=False)}"
    with replacing(file) as temporary:
        temporary.write_text(text)


def _settings(options: TuneOptions) -> dict[str, Any]:
    """What all trials have in common, beside the zoo's: plain data, since trials may run elsewhere."""
    return (read_mapping(options.config) if options.config else {}) | options.all_settings()


def _check_keys(options: TuneOptions, settings: dict[str, Any], space: dict[str, Any]) -> None:
    """A key of a space that does not exist, or that was also given a value, and a core that cannot be made, are to be
    known before the first trial, and before the folder holds a search that cannot be mended."""
    if fixed := set(flatten(settings)) & set(space):
        raise UserError(f"{min(fixed)} is searched for, and `settings` gives it a value; leave it out of one of them")
    first = {key: range_[0] if isinstance(range_, list) else range_["low"] for key, range_ in space.items()}
    sizes = {"n_steps", "batch_size", "n_epochs", "num_active", "sequence_length"}  # may fit in another combination
    alone = {key: value for key, value in first.items() if key not in sizes}
    config = zoo.load(
        resolve_arguments(options), options.algo,
        layers=[("`settings`", settings), (str(options.space or "search_spaces.yml"), alone)],
    ).config  # fmt: skip
    try:
        core_factory(config.core)
        if "." not in config.core:  # one's own may want another width of the input than this
            width = config.num_rims * config.rim_size
            core = make_core(config.core, 1, width, config.num_rims, config.num_active, None, **config.core_kwargs)
            if core.state_grows:
                raise ValueError(f"core {config.core!r} has a state that grows, and RL needs one of a fixed size")
    except ValueError as error:
        raise UserError(str(error)) from error


def _check_same(file: Path, definitions: dict[str, Any]) -> None:
    """A folder holds one search. Further cores may be added to it."""
    plain = json.loads(json.dumps(definitions))
    before: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for core in plain.keys() & before.keys():
        old, new = flatten(before[core]), flatten(plain[core])
        if key := next((key for key in {**old, **new} if old.get(key) != new.get(key)), None):
            raise UserError(
                f"{file.parent} holds another search: {key} is {old.get(key)!r} there and {new.get(key)!r} now; give "
                "another `name`"
            )
    write_json(file, before | plain)


def _draw_history(records: list[dict[str, Any]], title: str) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    done = [record for record in records if record["value"] is not None]
    cut = [record for record in records if record["state"] == "pruned" and record["evaluations"]]
    axes.plot(
        [record["number"] for record in cut], [record["evaluations"][-1][1] for record in cut], "x", color="0.6",
        label="ended early, last evaluation",
    )  # fmt: skip
    if done:
        numbers, values = zip(*((record["number"], record["value"]) for record in done), strict=True)
        best = [max(values[: i + 1]) for i in range(len(values))]
        axes.plot(numbers, values, "o", label="finished")
        axes.step(numbers, best, where="post", color="tab:red", label="best so far")
    axes.set(title=title, xlabel="trial", ylabel="score of the last evaluation")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _draw_importance(importance: dict[str, float]) -> Figure:
    figure = Figure(figsize=(7, 1 + 0.3 * len(importance)), layout="constrained")
    axes = figure.subplots()
    names = list(importance)[::-1]
    axes.barh(names, [importance[name] for name in names])
    axes.set(title="what the scores of trials depend on (PED-ANOVA)", xlabel="importance", xlim=(0, 1))
    axes.grid(axis="x", alpha=0.3)
    return figure
