"""One job of a suite: train an agent or go on training it, and play its policies."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.config.training_config import ALGORITHMS, TrainConfig
from rims_rl.core import RIM
from rims_rl.envs.names import resolve
from rims_rl.evaluation.evaluate import evaluate
from rims_rl.evaluation.evaluate_drop import evaluate_each
from rims_rl.evaluation.measure_life import measure_life
from rims_rl.evaluation.options import EvaluateOptions, VariantsOptions
from rims_rl.evaluation.play_variants import play_variants
from rims_rl.evaluation.run_report import learning_curve
from rims_rl.jobs.job import Job, Stopped
from rims_rl.runs.folder import Arguments, is_finished
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import RunResult, read_record
from rims_rl.suites.run_files import RunProgress, find_run, source_run
from rims_rl.training.options import ResumeOptions
from rims_rl.training.train import build, resolve_arguments, resume, start

N_ENVS = 8  # side by side in evaluations
LIFE_STEPS = 2000  # in which RIMs are watched after training
OF_UPDATES = ("rims/mask_flips", "train/first_ratio", "train/clip_fraction", "train/approx_kl")
MEASURED_SECONDS = 2.0  # of training, at least, after one rollout and update to warm up


@dataclass(frozen=True)
class AgentJob(Job):
    """Trains one agent in one environment, and plays it."""

    kind: ClassVar[str] = "agent"
    env: str  # as the suite names it
    name_of_env: str
    algo: str
    core: str  # the suite's name for it
    seed: int
    checkpoint_freq: int
    definition: dict[str, Any]
    source: str | None = None  # where it starts from, if not from scratch: names of environments with + between them

    @property
    def title(self) -> str:
        start = f"-from-{self.source}" if self.source else ""
        return f"{self.name_of_env}{start}_{self.algo}_{self.core}_{self.seed}"

    @property
    def steps(self) -> int:
        return int(self.definition["config"]["n_timesteps"])

    @property
    def sources(self) -> list[str]:
        return list(self.definition["init"]["sources"]) if self.source else []

    @property
    def group(self) -> tuple[str, str, str]:
        """What the seeds of one setting have in common."""
        return self.name_of_env, self.algo, self.core

    @property
    def speed_group(self) -> tuple[str, str, str, bool]:
        """On Atari, most time goes into the networks and not into the game."""
        env = "atari" if resolve(self.env, **self.definition["env_options"]).family == "atari" else self.name_of_env
        return env, self.algo, self.core, self.source is not None

    def measure_speed(self, threads: int) -> float:
        arguments = arguments_of(self, threads)
        model, _ = build(arguments, settings_of(self), resolve_arguments(arguments))  # it never evaluates
        rollout = model.n_steps * model.n_envs
        model.learn(rollout)
        begun, first = time.perf_counter(), model.num_timesteps
        while time.perf_counter() - begun < MEASURED_SECONDS:
            model.learn(rollout, reset_num_timesteps=False)
        speed = (model.num_timesteps - first) / (time.perf_counter() - begun)
        assert model.env is not None
        model.env.close()
        return speed

    def progress(self, folder: Path) -> RunProgress:
        return RunProgress(folder)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AgentJob:
        return cls(**data)

    def train_and_evaluate(self, folder: Path, threads: int) -> dict[str, Any]:
        return _result(self, folder, _train(self, folder, threads), threads)


def settings_of(job: AgentJob) -> TrainConfig:
    return ALGORITHMS[job.algo].model_validate(job.definition["config"])


def arguments_of(job: AgentJob, threads: int) -> Arguments:
    curve, steps = job.definition["curve"], job.definition["config"]["n_timesteps"]
    carry = job.definition["init"]["carry"] if job.source else None
    return Arguments(
        env=job.env,
        **job.definition["env_options"],
        algo=job.algo,
        seed=job.seed,
        threads=threads,
        eval_freq=0,
        checkpoint_freq=job.checkpoint_freq,
        exact_resume=job.definition["games_start_again_every"] is not None,
        keep_policies_every=max(1, steps // curve["points"]) if curve else 0,
        carry=None if carry == "columns" else carry,
    )


def _train(job: AgentJob, folder: Path, threads: int) -> Path:
    run = find_run(folder)
    if run is None:
        arguments, jobs = arguments_of(job, threads), folder.parent
        sources = [str(source_run(source, jobs)) for source in job.sources]
        start_from: dict[str, Any] = {"init_from": sources[0]} if arguments.carry else {"columns": sources}
        env = resolve_arguments(arguments)
        trained = start(arguments.model_copy(update=start_from), settings_of(job), env, folder, trust=True)
    elif not is_finished(run):
        trained = resume(ResumeOptions(run=run, trust=True))
    else:
        return run
    if trained.stopped_by is not None:
        raise Stopped(f"stopped after {trained.steps:,} steps; the same command goes on from there", trained.stopped_by)
    return trained.folder


def _result(job: AgentJob, folder: Path, run: Path, threads: int) -> dict[str, Any]:
    """What is worth keeping of a finished run, without paths of this machine."""
    trained = read_record(run / "run.json", RunResult, "remove the run, so that it is trained again")
    started = time.time()
    played, on_the_way = _play(run, job.definition["evaluation"], threads), _play_kept(run, job.definition, threads)
    policy = load_policy(run, trust=True)[0]
    without = None
    if job.definition["evaluation"].get("without_each_rim") and isinstance(policy.core, RIM):
        how = _how(job.definition["evaluation"], threads)
        without = evaluate_each(EvaluateOptions(run=run, out=folder / "without.json", **how)).removed
    return {
        "hash": job.hash,
        "job": {"env": job.name_of_env, "algo": job.algo, "core": job.core, "seed": job.seed, "source": job.source},
        "definition": job.definition,
        "steps": trained.steps,
        "resumed_from": trained.resumed_from,
        "parameters": policy.parameter_counts(),
        "curve": learning_curve(run),
        "on_the_way": on_the_way,
        "evaluation": played,
        "without": without,
        "life": measure_life(run, LIFE_STEPS, job.definition["evaluation"]["seed"], threads, trust=True),
        "updates": _updates(run),
        "random": _play_at_random(job, folder, threads),
        "trained_with": trained.model_dump(include={"date", "rims_rl", "commit", "torch", "numpy", "machine"}),
        **provenance(),
        "seconds": {"training": trained.seconds, "evaluation": round(time.time() - started, 1)},
    }


def _updates(run: Path) -> dict[str, float]:
    """Means over all updates of what training logged about them."""
    logged = EventAccumulator(str(run / "tensorboard"), {"scalars": 0}).Reload()
    there = [name for name in OF_UPDATES if name in logged.Tags()["scalars"]]
    return {name: fmean(event.value for event in logged.Scalars(name)) for name in there}


def _play(run: Path, evaluation: dict[str, Any], threads: int) -> dict[str, Any]:
    how = _how(evaluation, threads)
    if evaluation["variants"] is not None:
        played = play_variants(run, VariantsOptions(runs=[run], variants=evaluation["variants"], **how))
        return {key: played[key] for key in ("deterministic", "n_envs", "reference", "variants", "notes")}
    return _evaluate(EvaluateOptions(run=run, **how))


def _how(evaluation: dict[str, Any], threads: int) -> dict[str, Any]:
    how: dict[str, Any] = {"episodes": evaluation["episodes"], "seed": evaluation["seed"], "n_envs": N_ENVS}
    return how | {"threads": threads, "trust": True}  # what a suite names is its user's


def _play_at_random(job: AgentJob, folder: Path, threads: int) -> dict[str, Any] | None:
    """What transfer is measured against."""
    if "random" not in job.definition:
        return None
    options = EvaluateOptions(
        run=Path(job.env),
        random=True,
        episodes=job.definition["random"],
        seed=job.definition["evaluation"]["seed"],
        n_envs=N_ENVS,
        threads=threads,
        out=folder / "random.json",
        **job.definition["env_options"],
    )
    return _evaluate(options)


def _evaluate(options: EvaluateOptions) -> dict[str, Any]:
    kept = ("env", "deterministic", "episodes", "mean", "mean_95", "median", "std")
    return evaluate(options).model_dump(include=set(kept))


def _play_kept(run: Path, definition: dict[str, Any], threads: int) -> list[dict[str, Any]]:
    """The policies of the beginning and of the way; the one of the end has its own evaluation."""
    folders = sorted(run.glob("policies/*"), key=lambda path: int(path.name))
    if not definition["curve"]:
        return []
    evaluation = definition["curve"] | {"seed": definition["evaluation"]["seed"]}
    return [{"steps": int(folder.name), "variants": _short(_play(folder, evaluation, threads))} for folder in folders]


def _short(played: dict[str, Any]) -> dict[str, Any]:
    keys = ("episodes", "success", "success_95", "return")
    return {name: {key: variant[key] for key in keys} for name, variant in played["variants"].items()}
