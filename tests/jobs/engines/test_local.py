"""Suites as real processes, which are killed, stopped and broken."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from rims_rl.cli.job_display import print_status
from rims_rl.cli.suite_commands import estimate_here
from rims_rl.common.errors import UserError
from rims_rl.jobs.engines.engine import ATTEMPTS
from rims_rl.jobs.engines.local import COMMAND
from rims_rl.jobs.job import finished
from rims_rl.jobs.options import RunOptions
from rims_rl.suites.plan import read_plan
from tests.helpers.jobs import (
    children_of,
    is_alive,
    newest,
    outcomes,
    run_suite,
    wait_for_progress,
    wait_until,
    write,
)  # fmt: skip


def launch(file, folder):
    """``rims-rl suite run`` in a process of its own."""
    words = ["suite", "run", file, "--results", folder / "results", "--logdir", folder / "logs"]
    with (folder / "suite.txt").open("w") as log:
        return subprocess.Popen([sys.executable, "-c", COMMAND, *map(str, words)], stdout=log, stderr=log)


def kill_one_job(folder, since, others):
    """When it has gone on, kill one of the jobs that this process runs. ``others`` are children that it had before."""
    wait_for_progress(folder, since)
    os.kill(next(pid for pid in children_of(os.getpid()) if pid not in others), signal.SIGKILL)


KILLED = [("the suite and its jobs",), pytest.param(("the suite alone", "Ctrl-C"), marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("stopped", KILLED)
def test_a_suite_that_is_killed_or_stopped_ends_like_one_that_was_not(stopped, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rims-rl", "suite", "run", "tiny.yml"])
    (killed := tmp_path / "killed").mkdir()
    file, since = write(tmp_path), {}
    plan = read_plan(str(file))
    for how in stopped:
        suite = launch(file, killed)
        wait_for_progress(killed, since)
        jobs = children_of(suite.pid)
        assert len(jobs) == 2
        if how == "Ctrl-C":
            suite.send_signal(signal.SIGINT)
            assert suite.wait() == 130
            assert "waiting for 2 jobs to save" in (text := (killed / "suite.txt").read_text())
            assert text.splitlines()[-1].startswith("stopped; to go on: rims-rl suite run")
        else:
            for pid in [suite.pid, *jobs] if how == "the suite and its jobs" else [suite.pid]:
                os.kill(pid, signal.SIGKILL)
            suite.wait()
        wait_until(lambda: not any(map(is_alive, jobs)))  # noqa: B023
        since = newest(killed)
    print_status(plan.experiment(killed / "results", killed / "logs"))
    assert "2 jobs: 2 interrupted" in capsys.readouterr().out
    killer = threading.Thread(target=kill_one_job, args=(killed, since, children_of(os.getpid())))
    killer.start()
    run_suite(plan, killed / "results", killed / "logs", 2, 1)
    killer.join()
    assert capsys.readouterr().out.count("was ended by signal 9; it will be tried again") == 1
    run_suite(plan, tmp_path / "results", tmp_path / "logs", 2, 1)
    assert outcomes(killed / "results") == outcomes(tmp_path / "results")
    resumed = [json.loads(path.read_text())["resumed_from"] for path in (killed / "results").iterdir()]
    assert all(resumed)
    assert len(list(killed.glob("logs/suites/tiny/*/ppo/*"))) == 2, "no run was begun twice"
    print_status(plan.experiment(killed / "results", killed / "logs"))
    assert "2 jobs: 2 finished" in capsys.readouterr().out

    times = [path.stat().st_mtime for path in killed.rglob("*")]
    run_suite(plan, killed / "results", killed / "logs", 2, 1)
    assert "2 of 2 jobs are finished, 0 to do" in capsys.readouterr().out
    run_suite(plan, killed / "results", tmp_path / "elsewhere", 2, 1)  # results alone are enough
    assert [path.stat().st_mtime for path in killed.rglob("*")] == times and not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_a_job_that_dies_is_tried_again_and_does_not_stop_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rims-rl", "suite", "run", "tiny.yml"])
    (tmp_path / "deadly.py").write_text(
        "import os\ndef core(*_, **__):\n    print('the end', flush=True)\n    os.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cores = {"dies": {"core": "deadly.core"}, "wrong": {"core": "nosuch.core"}, "lstm": {"rim_size": 4}}
    plan = read_plan(str(write(tmp_path, cores=cores, seeds=[0], steps=128)))
    with pytest.raises(SystemExit) as exit_:
        run_suite(plan, tmp_path / "results", tmp_path / "logs", 2, 1)
    assert exit_.value.code == 1
    text = capsys.readouterr().out
    dies, wrong, lstm = (job.name for job in plan.jobs)
    assert text.count(f"{dies}: was ended by signal 6; it will be tried again") == ATTEMPTS - 1
    assert re.search(f"{dies}: failed; the end of .*log.txt:\n(the end\n)+", text), "the last lines of its log"
    assert f"{wrong}: failed; the end of" in text and f"{wrong}: ended" not in text
    assert "core nosuch.core cannot be imported" in text and "Traceback" not in text
    assert f"{lstm}: finished, 1 of 3" in text
    assert "2 of 3 jobs failed; when that is mended: rims-rl suite run tiny.yml" in text
    assert list(finished(tmp_path / "results")) == [plan.jobs[2].hash]


def test_more_processes_and_threads_than_cores_are_refused(tmp_path):
    cores = os.cpu_count()
    with pytest.raises(UserError, match=f"{cores} jobs of 2 threads are more than the {cores} cores of this machine"):
        run_suite(read_plan(str(write(tmp_path))), tmp_path / "results", tmp_path / "logs", cores, 2)


def test_a_dry_run_lists_what_is_finished_and_measures_the_rest(tmp_path, capsys):
    plan = read_plan(str(write(tmp_path)))
    (tmp_path / f"any-name_{plan.jobs[0].hash}.json").write_text("{}")
    estimate_here(plan, tmp_path, RunOptions())
    text = capsys.readouterr().out
    assert f"{plan.jobs[0].name} │ finished" in text and f"{plan.jobs[1].name} │ to do" in text
    assert "1 of 2 jobs are finished. The others take 0:0" in text
    assert not (tmp_path / "logs").exists()
