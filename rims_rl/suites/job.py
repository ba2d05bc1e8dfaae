"""One job of a suite: train or go on training, play the policies, and leave one small file."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from filelock import FileLock

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.files import clear_leftovers, write_json
from rims_rl.config.training_config import ALGORITHMS, TrainConfig
from rims_rl.evaluation.evaluate import evaluate, result_path
from rims_rl.evaluation.play_variants import play_variants
from rims_rl.evaluation.run_report import learning_curve
from rims_rl.runs.folder import Arguments, read_result
from rims_rl.runs.provenance import provenance
from rims_rl.suites.plan import Job
from rims_rl.suites.storage import find_run, finished, source_run
from rims_rl.training.train import resume, start

N_ENVS = 8  # side by side in evaluations


def run_job_of(folder: Path, results: Path, threads: int) -> None:
    """The job whose ``job.json`` is in ``folder``. When the suite that started this process is gone, it stops too."""
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    run_job(Job(**json.loads((folder / "job.json").read_text())), folder, results, threads)


def run_job(job: Job, folder: Path, results: Path, threads: int) -> None:
    """Do what is left of a job, and write its result. Waits for another process that is at it."""
    with FileLock(folder / ".lock"):
        if job.hash in finished(results):
            return
        clear_leftovers(results)
        run = _train(job, folder, threads)
        write_json(results / f"{job.name}.json", _result(job, folder, run, threads))


def settings_of(job: Job) -> TrainConfig:
    return ALGORITHMS[job.algo].model_validate(job.definition["config"])


def arguments_of(job: Job, threads: int) -> Arguments:
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


def _train(job: Job, folder: Path, threads: int) -> Path:
    run = find_run(folder)
    if run is None:
        arguments, jobs = arguments_of(job, threads), folder.parent
        sources = [str(source_run(source, jobs)) for source in job.sources]
        start_from: dict[str, Any] = {"init_from": sources[0]} if arguments.carry else {"columns": sources}
        return start(arguments.model_copy(update=start_from), settings_of(job), folder)
    if not read_result(run).get("finished"):
        resume(run, None)
    return run


def _result(job: Job, folder: Path, run: Path, threads: int) -> dict[str, Any]:
    """What is worth keeping of a finished run, without paths of this machine."""
    about, started = read_result(run), time.time()
    played, on_the_way = _play(run, job.definition["evaluation"], threads), _play_kept(run, job.definition, threads)
    return {
        "hash": job.hash,
        "job": {"env": job.name_of_env, "algo": job.algo, "core": job.core, "seed": job.seed, "source": job.source},
        "definition": job.definition,
        "steps": about["steps"],
        "resumed_from": about["resumed_from"],
        "parameters": load_policy(run)[0].parameter_counts(),
        "curve": learning_curve(run),
        "on_the_way": on_the_way,
        "evaluation": played,
        "random": _play_at_random(job, folder, threads),
        "trained_with": {key: about[key] for key in ("date", "rims_rl", "commit", "torch", "numpy", "machine")},
        **provenance(),
        "seconds": {"training": about["seconds"], "evaluation": round(time.time() - started, 1)},
    }


def _play(run: Path, evaluation: dict[str, Any], threads: int) -> dict[str, Any]:
    episodes, seed = evaluation["episodes"], evaluation["seed"]
    if evaluation["variants"] is not None:
        played = play_variants(run, evaluation["variants"], episodes, None, seed, N_ENVS, threads)
        return {key: played[key] for key in ("deterministic", "n_envs", "reference", "variants", "notes")}
    evaluate(run, episodes, None, seed, N_ENVS, threads, None)
    return _read_evaluation(result_path(run))


def _play_at_random(job: Job, folder: Path, threads: int) -> dict[str, Any] | None:
    """What transfer is measured against."""
    if "random" not in job.definition:
        return None
    out, seed = folder / "random.json", job.definition["evaluation"]["seed"]
    options = job.definition["env_options"]
    evaluate(Path(job.env), job.definition["random"], None, seed, N_ENVS, threads, out, random=True, **options)
    return _read_evaluation(out)


def _read_evaluation(path: Path) -> dict[str, Any]:
    played = json.loads(path.read_text())
    return {key: played[key] for key in ("env", "deterministic", "episodes", "mean", "mean_95", "median", "std")}


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


def _stop_at_end_of_input() -> None:
    """The suite holds the other end of our standard input, and never writes to it."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
