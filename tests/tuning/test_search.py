"""A search: what it tries, which trials it ends early, that it goes on, and what `train` makes of the best."""

import json
import subprocess
import sys

import optuna
import pytest
import yaml
from matplotlib.image import imread

from rims_rl.common.errors import UserError
from rims_rl.jobs.engines.local import COMMAND
from rims_rl.jobs.job import is_held
from rims_rl.training.train import TrainOptions, train
from rims_rl.tuning.options import TuneOptions
from rims_rl.tuning.search_space import distributions, read_space, settings_of
from rims_rl.tuning.study import plan_search, write_found
from rims_rl.tuning.trial_job import open_study
from tests.helpers.ray_cluster import ray_cluster
from tests.helpers.verbs import user_error

SPACE = """\
learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
n_steps: [16, 32]
policy_kwargs.net_arch: [[8], [8, 8]]
"""
SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4, "n_envs": 2, "batch_size": 32, "n_epochs": 1}


def options(folder, **others):
    (folder / "space.yml").write_text(SPACE)
    return TuneOptions(**{
        "env": "CartPole-v1", "trials": 2, "n_timesteps": 128, "settings": SMALL, "space": folder / "space.yml",
        "evaluations": 2, "eval_episodes": 1, "logdir": folder / "logs", **others,
    })  # fmt: skip


def run_here(experiment, *jobs):
    """In this process, one after the other."""
    for job in jobs or experiment.jobs:
        job.run(experiment.folder_of(job), experiment.results, threads=1)


def test_the_best_settings_are_a_file_that_train_takes(tmp_path):
    experiment = plan_search(options(tmp_path, cores=("rims", "lstm"), trials=3))
    run_here(experiment)
    found = write_found(experiment)
    assert [(one.core, one.states["complete"]) for one in found] == [("rims", 3), ("lstm", 3)]
    for one in found:
        trials = json.loads((one.folder / "trials.json").read_text())["trials"]
        assert one.best["value"] == max(trial["value"] for trial in trials)
        assert imread(one.folder / "history.png").std() > 0.05
        result = train(TrainOptions(env="CartPole-v1", config=one.folder / "best.yml", logdir=tmp_path, n_timesteps=64))
        config = yaml.safe_load((result.folder / "CartPole-v1/config.yml").read_text())
        assert config["core"] == one.core and config["num_rims"] == 3
        best = one.best["settings"]
        assert config["learning_rate"] == best["learning_rate"] and config["n_steps"] == best["n_steps"]
        assert config["policy_kwargs"]["net_arch"] == best["policy_kwargs.net_arch"]


def test_more_trials_of_the_same_search_go_on_where_it_ended(tmp_path):
    first = plan_search(options(tmp_path))
    run_here(first)
    more = plan_search(options(tmp_path, trials=4))
    assert [job.hash in more.finished() for job in more.jobs] == [True, True, False, False]
    run_here(more)
    assert len(open_study(more.jobs[0]).trials) == 4 and len(write_found(more)[0].importance) == 3
    assert imread(write_found(more)[0].folder / "importance.png").std() > 0.05


def test_a_trial_that_does_worse_than_others_is_ended_early(tmp_path):
    experiment = plan_search(options(tmp_path, trials=1, evaluations=4))
    (job,) = experiment.jobs
    study = open_study(job)
    for _ in range(6):  # others that were much better at every step
        trial = study.ask(fixed_distributions=distributions(job.definition["space"], ""))
        for steps in range(0, 129, 32):
            trial.report(1e6, steps)
        study.tell(trial, 1e6)
    run_here(experiment)
    result = json.loads((experiment.results / f"{job.name}.json").read_text())["trial"]
    assert result["state"] == "pruned" and result["why"].startswith("pruned after ")
    assert 0 < len(result["evaluations"]) < 4


def test_settings_that_do_not_fit_together_end_a_trial_and_not_the_search(tmp_path):
    asked = options(tmp_path, trials=1)
    asked.space.write_text("n_steps: [24]\n")
    experiment = plan_search(asked)
    run_here(experiment)
    (found,) = write_found(experiment)
    assert found.states["pruned"] == 1 and found.best is None
    (trial,) = json.loads((found.folder / "trials.json").read_text())["trials"]
    assert "batch_size must divide" in trial["why"]


def test_a_killed_trial_goes_on_with_the_same_settings(tmp_path):
    experiment = plan_search(options(tmp_path, trials=1))
    (job,) = experiment.jobs
    run_here(experiment)
    asked = json.loads((experiment.folder_of(job) / "trial.json").read_text())["settings"]
    (experiment.results / f"{job.name}.json").unlink()  # killed before it was written
    run_here(experiment)
    study = open_study(job)
    assert len(study.trials) == 1 and settings_of(study.trials[0].params) == asked


def test_another_search_under_the_same_name_is_refused(tmp_path):
    plan_search(options(tmp_path))
    with user_error("holds another search: steps is 128 there and 256 now; give another --name"):
        plan_search(options(tmp_path, n_timesteps=256))
    plan_search(options(tmp_path, n_timesteps=256, name="other"))


def test_every_core_has_the_same_space_but_for_what_its_kind_alone_has():
    rims, robust, lstm = (read_space("ppo", core, None) for core in ("rims", "rims-robust", "lstm"))
    assert rims == robust and rims.keys() - lstm.keys() == {"num_active"} and lstm.items() <= rims.items()


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_shipped_spaces_fit_every_environment_of_the_zoo(algo, tmp_path):
    for env in ("CartPole-v1", "PickupKnown", "Breakout", "RepeatPreviousEasy"):
        plan_search(TuneOptions(env=env, algo=algo, cores=("rims", "lstm"), logdir=tmp_path))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("lerning_rate: [1]", "no key 'lerning_rate' .*did you mean learning_rate"),
        ("learning_rate: 1", "must be a list to choose from, or low, high"),
        ("learning_rate: {low: 2, high: 1}", "is no range"),
        ("learning_rate: [-1]", "learning_rate must be a positive number"),
        ("rim_size: [1, 2]", "rim_size is searched for, and --set gives it a value"),
    ],
)
def test_a_mistake_in_a_space_is_one_sentence_before_the_first_trial(space, words, tmp_path):
    asked = options(tmp_path)
    (tmp_path / "space.yml").write_text(space)
    with user_error(words):
        plan_search(asked)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"cores": ("rims", "lsmt")}, "core must be one of .*, got 'lsmt'; did you mean 'lstm'"),
        ({"settings": SMALL | {"core_kwargs.foo": 1}}, "core 'rims-robust' has no option 'foo'"),
        ({"cores": ("transformer",)}, "core 'transformer' has a state that grows, and RL needs one of a fixed size"),
        ({"cores": ("no_module.Core",)}, "core no_module.Core cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_core_that_cannot_be_made_is_one_sentence_and_leaves_no_search(others, words, tmp_path):
    with user_error(words):
        plan_search(options(tmp_path, **others))
    assert not (tmp_path / "logs").exists()


def test_a_storage_that_cannot_be_used_is_one_sentence(tmp_path):
    with user_error("--storage sqlite:////proc/x.db cannot be used"):
        plan_search(options(tmp_path, storage="sqlite:////proc/x.db"))
    with pytest.raises(UserError, match="`pruner` must be 'median'"):
        options(tmp_path, pruner="x")


def launch(asked, *more, env=None):
    """The command of such a search, in a process of its own."""
    words = [
        "tune", "--env", "CartPole-v1", "--trials", asked.trials, "-n", 128, "--space", asked.space, "--evaluations", 2,
        "--eval-episodes", 1, "--logdir", asked.logdir, *more,
    ]  # fmt: skip
    words += [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


@pytest.mark.slow
def test_two_commands_on_one_search_share_its_trials(tmp_path):
    asked = options(tmp_path, trials=4)
    processes = [launch(asked, "--jobs", 1) for _ in range(2)]
    said = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    experiment = plan_search(asked)
    assert len(experiment.finished()) == 4 and not any(is_held(experiment.folder_of(job)) for job in experiment.jobs)
    states = [trial.state for trial in open_study(experiment.jobs[0]).trials]
    assert states == [optuna.trial.TrialState.COMPLETE] * 4


@pytest.mark.ray
def test_trials_run_on_ray(tmp_path):
    asked = options(tmp_path)
    with ray_cluster() as cluster:
        cluster.start(f"--address={cluster.address}", "--num-cpus=2")
        process = launch(asked, "--engine", "ray", "--ray-address", cluster.address, env=cluster.env)
        cluster.commands.append(process)
        said = process.communicate(timeout=280)[0]
    assert process.returncode == 0, said
    assert write_found(plan_search(asked))[0].states["complete"] == 2
