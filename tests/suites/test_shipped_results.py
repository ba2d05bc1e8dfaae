"""Results that are there count as finished: neither a new option nor a new version gives their jobs another hash."""

import json
from pathlib import Path

import pytest
import yaml
from pydantic import create_model

from rims_rl.config.training_config import ALGORITHMS
from rims_rl.config.zoo import load_saved
from rims_rl.suites.job import settings_of
from rims_rl.suites.plan import make_plan, read_plan
from rims_rl.supervised.job import SupervisedJob
from rims_rl.supervised.task import load, load_ablations
from rims_rl.supervised.task_names import TASKS

RESULTS = Path(__file__).parents[2] / "docs/results"
OF_SUITES = sorted({path.parent.name for path in RESULTS.glob("*/*_*.json")} - {"imitation"})
OF_TASKS = sorted(RESULTS.glob("supervised/*/*.json"))
SHORT = ["batch_size=8", "iterations=1500", "test_every=500", "test_sequences=200"]
GIVEN = {  # as docs/reference/supervised/ says
    "copying": [
        ["hidden_size=300", "core_kwargs={}"],
        ["hidden_size=600", "core_kwargs={}"],
        ["num_rims=5", "num_active=2", "hidden_size=500", "core_kwargs={}"],
    ],
    "adding": [["hidden_size=300", "core_kwargs={}", "iterations=5000"]],
    "sequential_mnist": [
        ["iterations=1874", "learning_rate=0.001", "test_every=1874", "hidden_size=300", "core_kwargs={}"],
    ],
    "bouncing_balls": [SHORT, [*SHORT, "hidden_size=512", "core_kwargs={}"]],
    "moving_mnist": [SHORT],
    "translation": [[], ["languages=[de,fr]"]],
}


def definition_of(path):
    result = json.loads(path.read_text())
    assert path.stem.endswith(f"_{result['hash']}")
    return result["definition"]


def supervised_job(definition, config_class=None):
    task = TASKS[definition["task"]]
    config = (config_class or task.config_class).model_validate(definition["config"])
    return SupervisedJob(task, config, definition["seed"])


def test_all_kinds_of_results_are_there():
    assert {"novel_distractors", "transfer_small", "atari_pilot"} <= set(OF_SUITES)
    assert {path.parent.name for path in OF_TASKS} == set(GIVEN)


@pytest.mark.parametrize("suite", OF_SUITES)
def test_a_result_of_a_suite_is_that_of_a_job_of_its_plan_still(suite):
    planned = {job.name: job for job in read_plan(suite).all_jobs}
    for path in sorted((RESULTS / suite).glob("*.json")):
        definition = definition_of(path)
        assert path.stem in planned, f"{path} would be run again"
        assert planned[path.stem].definition == definition
        if "algo" in definition:  # of an agent, not of a supervised task
            config = ALGORITHMS[definition["algo"]].model_validate(definition["config"])
            assert config.definition() == definition["config"]


@pytest.mark.parametrize("path", OF_TASKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_result_of_a_task_is_that_of_its_settings_still(path):
    assert supervised_job(definition_of(path)).name == path.stem, "it would be trained again"


@pytest.mark.parametrize("task", GIVEN)
def test_results_of_a_task_follow_from_the_zoo_and_what_was_given(task):
    there = {path.stem for path in OF_TASKS if path.parent.name == task}
    cores = sorted({name.split("_")[0] for name in there})
    configs = [load(TASKS[task], [f"core={core}", *given]) for given in GIVEN[task] for core in cores]
    if task == "copying":
        configs += load_ablations(TASKS[task], ["hidden_size=300"])
    planned = {SupervisedJob(TASKS[task], config, seed).name for config in configs for seed in range(3)}
    assert there <= planned, "these would be trained again"


def test_a_new_option_of_a_task_at_its_default_leaves_the_hash_alone_and_another_value_does_not():
    path = OF_TASKS[0]
    definition = definition_of(path)
    more = create_model("More", __base__=TASKS[definition["task"]].config_class, new=(int, 3))
    assert supervised_job(definition, more).name == path.stem
    for given, same in ((3, True), (4, False)):
        config = definition["config"] | {"new": given}
        assert (supervised_job(definition | {"config": config}, more).name == path.stem) is same


def test_a_new_hyperparameter_at_its_default_leaves_hashes_alone_and_old_runs_are_read(tmp_path, monkeypatch):
    before = read_plan("atari_pilot").jobs[0]
    saved = tmp_path / "config.yml"
    saved.write_text(yaml.safe_dump(before.definition["config"]))
    monkeypatch.setitem(ALGORITHMS, "ppo", create_model("More", __base__=ALGORITHMS["ppo"], new=(bool, False)))
    assert read_plan("atari_pilot").jobs[0].name == before.name
    assert settings_of(before).new is False and load_saved(saved, "ppo").new is False
    for given, same in ((False, True), (True, False)):
        suite = read_plan("atari_pilot").suite.model_dump() | {"overrides": {"new": given}}
        assert (make_plan("atari_pilot", suite, "", "").jobs[0].name == before.name) is same
