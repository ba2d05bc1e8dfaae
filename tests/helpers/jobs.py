"""Jobs that really run: a suite of two small ones, and how to wait for them, look at them and compare them."""

import json
import time
from pathlib import Path

import yaml

from rims_rl.cli.suite_commands import run_here
from rims_rl.jobs.options import RunOptions

SUITE = {
    "title": "a test",
    "envs": ["CartPole-v1"],
    "algos": {"ppo": {"normalize": False, "n_envs": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 1}},
    "cores": {"lstm": {"rim_size": 4}},
    "seeds": [0, 1],  # as fast as each other
    "steps": 4096,
    "checkpoint_freq": 128,
    "exact_resume": True,
    "evaluation": {"episodes": 4},
    "report": "atari",
}


def write(folder, **changes):
    path = folder / "tiny.yml"
    path.write_text(yaml.safe_dump(SUITE | changes, sort_keys=False))
    return path


def run_suite(plan, results, logdir, jobs, threads):
    """As ``rims-rl suite run`` does, in this process."""
    run_here(plan, results, logdir, RunOptions(jobs=jobs, threads=threads))


def newest(folder):
    """Steps of the newest checkpoint of each job that has one."""
    found = {
        job: [int(p.stem) for p in job.glob("*/*_1/checkpoints/*.pt")] for job in folder.glob("logs/suites/tiny/*")
    }
    return {job: max(steps) for job, steps in found.items() if steps}


def wait_until(condition, seconds=400):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline
        time.sleep(0.05)


def wait_for_progress(folder, since):
    """Until both jobs have begun, and one of them has gone on."""
    wait_until(lambda: len(now := newest(folder)) == 2 and any(now[job] > since.get(job, 0) for job in now))


def children_of(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_alive(pid):
    """Whether a process runs. A dead one that nobody waited for does not, once its last thread has let go its files."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:  # gone
        return False


def outcomes(results):
    """Results, without where and when."""
    keys = ("hash", "job", "definition", "steps", "parameters", "curve", "on_the_way", "evaluation")
    found = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    return [{key: result[key] for key in keys} for result in found]
