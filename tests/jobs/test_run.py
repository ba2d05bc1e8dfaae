"""Jobs from Python: an experiment whose jobs are of both kinds, and what comes back."""

import json

from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.options import RunOptions
from rims_rl.jobs.run import run_jobs
from rims_rl.jobs.status import status
from rims_rl.suites.job import AgentJob
from rims_rl.suites.plan import read_plan
from rims_rl.supervised.job import SupervisedJob
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks.copying import Copying
from tests.helpers.jobs import write

TINY = ["digits=2", "span=3", "test_spans=[3]", "hidden_size=12", "batch_size=4", "iterations=3", "test_sequences=4"]


def both_kinds(folder):
    agent = read_plan(str(write(folder, seeds=[0], steps=64))).jobs[0]
    return [agent, SupervisedJob(Copying, load(Copying, [*TINY, "core=lstm"]), 0, workers=0, data_dir=folder)]


def test_jobs_of_both_kinds_run_in_one_experiment_and_nothing_is_printed(tmp_path, capfd):
    jobs = both_kinds(tmp_path)
    experiment = Experiment("mixed", "a test", jobs, tmp_path / "results", tmp_path / "jobs")
    assert experiment.unit == "steps or iterations"
    assert [each.state for each in status(experiment)] == ["waiting", "waiting"]
    assert run_jobs(experiment, RunOptions(jobs=2)) == (0, None)
    assert [each.state for each in status(experiment)] == ["finished", "finished"]
    assert capfd.readouterr() == ("", "")
    for job in jobs:
        result = json.loads((tmp_path / f"results/{job.name}.json").read_text())
        assert result["definition"] == job.definition and result["hash"] == job.hash


def test_another_process_reads_the_same_job(tmp_path):
    for job, kind in zip(both_kinds(tmp_path), (AgentJob, SupervisedJob), strict=True):
        again = kind.from_json(json.loads(json.dumps(job.to_json())))
        assert again == job and again.name == job.name
