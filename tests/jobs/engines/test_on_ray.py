"""Suites on real Ray clusters of this machine: a head, worker nodes that are killed, and addresses where nobody is."""

import json
import os
import signal

import pytest
from ray.exceptions import NodeDiedError, RayTaskError, TaskCancelledError, WorkerCrashedError

from rims_rl.jobs.engines.on_ray import _outcome
from rims_rl.jobs.options import RunOptions
from rims_rl.jobs.run import run_jobs
from rims_rl.suites.plan import read_plan
from tests.helpers.jobs import children_of, outcomes, run_suite, wait_for_progress, wait_until, write
from tests.helpers.ray_cluster import ray_cluster
from tests.helpers.verbs import user_error


@pytest.fixture
def cluster():
    with ray_cluster() as cluster:
        yield cluster


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_suite_whose_node_is_killed_ends_with_the_results_of_a_local_one(cluster, tmp_path):
    node = cluster.start(f"--address={cluster.address}", "--num-cpus=1")
    (on_ray := tmp_path / "on_ray").mkdir()
    file = write(tmp_path)
    suite = cluster.run_suite(file, on_ray)
    cluster.start(f"--address={cluster.address}", "--num-cpus=1")  # joins while the suite runs, and gets the second job
    wait_for_progress(on_ray, {})
    for pid in [node.pid, *children_of(node.pid)]:  # among them the raylet, without which a node is dead
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: suite.poll() is not None)
    text = (on_ray / "suite.txt").read_text()
    assert suite.returncode == 0, text
    assert text.count("was ended by signal 9; it will be tried again") == 1

    plan = read_plan(str(file))
    run_suite(plan, tmp_path / "results", tmp_path / "logs", 2, 1)
    assert len(outcomes(on_ray / "results")) == 2 and outcomes(on_ray / "results") == outcomes(tmp_path / "results")
    resumed = [json.loads(path.read_text())["resumed_from"] for path in (on_ray / "results").iterdir()]
    assert sum(map(bool, resumed)) == 1, "the job of the dead node went on from its checkpoint, the other one was alone"


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_ctrl_c_lets_jobs_save_and_a_cluster_without_room_or_with_another_token_is_one_sentence(cluster, tmp_path):
    file = write(tmp_path, steps=400_000)  # nobody is done before Ctrl-C
    suite = cluster.run_suite(file, tmp_path)
    wait_until(lambda: suite.poll() is not None)
    assert suite.returncode == 2
    assert "rims-rl: no node of the cluster has 1 CPUs and 0 GPUs" in (tmp_path / "suite.txt").read_text()

    suite = cluster.run_suite(file, tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH="", RAY_AUTH_TOKEN="another")
    wait_until(lambda: suite.poll() is not None)
    last = (tmp_path / "suite.txt").read_text().splitlines()[-1]
    assert suite.returncode == 2 and last.startswith(f"rims-rl: Ray cannot be used at {cluster.address}: ")
    assert last.endswith("is RAY_AUTH_MODE=token set here, as it is there, and the token the same?")

    cluster.start(f"--address={cluster.address}", "--num-cpus=2")
    suite = cluster.run_suite(file, tmp_path)
    wait_for_progress(tmp_path, {})
    suite.send_signal(signal.SIGINT)
    wait_until(lambda: suite.poll() is not None)
    text = (tmp_path / "suite.txt").read_text()
    assert suite.returncode == 130 and "waiting for 2 jobs to save" in text, text
    for job in (tmp_path / "logs/suites/tiny").iterdir():
        assert "stopped after" in (job / "log.txt").read_text()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (
            "127.0.0.1:1",
            r"at --ray-address 127.0.0.1:1 \(.*refused\); start one there with: RAY_AUTH_MODE=token ray start --head -",
        ),
        ("nowhere.invalid:6379", "no Ray cluster answers at --ray-address nowhere.invalid:6379"),
        ("a..b:6379", r"no Ray cluster answers at --ray-address a\.\.b:6379 \("),
        ("head:99999", "--ray-address must be the host and port of a head, such as 10.0.0.1:6379, got 'head:99999'"),
        ("head", "--ray-address must be the host and port of a head, such as 10.0.0.1:6379, got 'head'"),
    ],
)
def test_an_address_that_does_not_answer_is_one_sentence(address, words, tmp_path):
    with user_error(words):
        run_jobs(
            read_plan(str(write(tmp_path))).experiment(tmp_path, tmp_path),
            RunOptions(engine="ray", ray_address=address),
        )


def test_what_is_raised_on_a_node_is_not_taken_for_the_death_of_the_node():
    raised = RayTaskError("_run_job", "Traceback:\n  ...\nPermissionError: [Errno 13] log.txt\n", PermissionError(13))
    for error in (raised, raised.as_instanceof_cause()):
        assert _outcome(error) == (1, "PermissionError: [Errno 13] log.txt\n")
    assert _outcome(TaskCancelledError()) == (-signal.SIGTERM, "")
    assert _outcome(WorkerCrashedError()) == _outcome(NodeDiedError("it")) == (-signal.SIGKILL, "")
