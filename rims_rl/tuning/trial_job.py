"""One trial of a search: settings that Optuna proposes, trained with an eye on other trials."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from rims_rl.agents.callbacks.base import TrainingCallback
from rims_rl.common.errors import Diverged, UserError
from rims_rl.common.files import write_json
from rims_rl.config import zoo
from rims_rl.jobs.job import Job, Stopped
from rims_rl.runs.folder import Arguments, is_finished
from rims_rl.runs.provenance import provenance
from rims_rl.suites.run_files import RunProgress, find_run
from rims_rl.training.options import ResumeOptions
from rims_rl.training.train import resolve_arguments, resume, start
from rims_rl.tuning.search_space import distributions, settings_of

optuna.logging.set_verbosity(optuna.logging.WARNING)  # the command line says how trials end


@dataclass(frozen=True)
class TrialJob(Job):
    """Trains one trial and tells Optuna how it did. Killed, it goes on with the same settings."""

    kind: ClassVar[str] = "trial"
    name_of_env: str
    core: str
    number: int
    storage: str
    definition: dict[str, Any]

    @property
    def title(self) -> str:
        return f"{self.name_of_env}_{self.definition['arguments']['algo']}_{self.core}_{self.number}"

    @property
    def steps(self) -> int:
        return int(self.definition["steps"])

    @property
    def speed_group(self) -> tuple[Hashable, ...]:
        return self.core, self.name_of_env

    def measure_speed(self, threads: int) -> float:
        raise NotImplementedError("trials are as fast as what they try")

    def progress(self, folder: Path) -> RunProgress:
        return RunProgress(folder)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TrialJob:
        return cls(**data)

    def train_and_evaluate(self, folder: Path, threads: int) -> dict[str, Any]:
        started, study = time.time(), open_study(self)
        trial = _own_trial(self, study, folder)
        if not study.trials[trial.number].state.is_finished():  # or it was killed before it could say so here
            try:
                _train(self, folder, trial, threads)
            except _Ended as end:
                trial.set_user_attr("why", end.why)
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, _reported(trial)[-1][1])
        return {"trial": trial_record(study.trials[trial.number]), **provenance(started)}


class _Ended(Exception):
    """A trial that is not worth going on with."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Pruning(TrainingCallback):
    """Tells Optuna of each evaluation, and ends the training if Optuna says so."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._trial = trial

    def on_evaluation(self, steps: int, mean: float) -> None:
        if steps in dict(_reported(self._trial)):
            return  # a resumed trial evaluates once more where it stopped
        self._trial.report(mean, steps)
        if self._trial.should_prune():
            raise _Ended(f"pruned after {steps:,} steps")


def open_study(job: TrialJob) -> optuna.Study:
    """Of the core of a job; made if it is not there yet."""
    made, seed = job.definition, job.definition["arguments"].get("seed", 0)
    samplers: dict[str, Any] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed + job.number),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed + job.number),
    }
    pruners: dict[str, Any] = {
        "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=job.steps // 5),
        "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=max(1, job.steps // 10)),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(max(1, job.steps // 10), job.steps),
        "none": optuna.pruners.NopPruner,
    }
    try:
        return optuna.create_study(
            storage=job.storage,
            study_name=f"{made['name']}/{job.core}",
            load_if_exists=True,
            direction="maximize",
            sampler=samplers[made["sampler"]](),
            pruner=pruners[made["pruner"]](),
        )
    except Exception as error:  # each database has its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"`storage` {job.storage} cannot be used: {reason}") from error


def trial_record(trial: FrozenTrial) -> dict[str, Any]:
    """What is worth keeping of a trial."""
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "why": trial.user_attrs.get("why"),
        "value": trial.value,
        "settings": settings_of(trial.params),
        "evaluations": [[steps, value] for steps, value in sorted(trial.intermediate_values.items())],
        "seconds": trial.duration.total_seconds() if trial.duration else None,
    }


def _own_trial(job: TrialJob, study: optuna.Study, folder: Path) -> Trial:
    """The trial that this job has asked for before, or a new one."""
    file = folder / "trial.json"
    if file.exists():
        return Trial(study, int(json.loads(file.read_text())["id"]))
    trial = study.ask(fixed_distributions=distributions(job.definition["space"], "the space"))
    write_json(file, {"id": trial._trial_id, "number": trial.number, "settings": settings_of(trial.params)})
    return trial


def _train(job: TrialJob, folder: Path, trial: Trial, threads: int) -> None:
    made, run, callbacks = job.definition, find_run(folder), [_Pruning(trial)]
    arguments = Arguments(**made["arguments"], threads=threads)
    env = resolve_arguments(arguments)
    layers = [("`settings`", made["settings"]), (f"trial {trial.number}", settings_of(trial.params))]
    try:
        config = zoo.load(env, arguments.algo, layers=layers).config
    except UserError as error:  # each fits, but not together
        raise _Ended(f"refused: {error}") from error
    try:
        if run is None:
            trained = start(arguments, config, env, folder, callbacks=callbacks)
        elif is_finished(run):
            return
        else:
            trained = resume(ResumeOptions(run=run), callbacks)
    except UserError as error:
        if isinstance(error.__cause__, Diverged):
            raise _Ended(f"diverged: {error.__cause__}") from error
        raise
    if trained.stopped_by is not None:
        raise Stopped(f"stopped after {trained.steps:,} steps; the same command goes on from there", trained.stopped_by)


def _reported(trial: Trial) -> list[tuple[int, float]]:
    """Steps and scores of the evaluations so far."""
    values = trial.study._storage.get_trial(trial._trial_id).intermediate_values
    return sorted(values.items())
