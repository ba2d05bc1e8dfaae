"""What the command line reads and shows: large numbers as people write them, help that is not cut, lines in a file."""

import io
import os
import subprocess
import sys

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from rims_rl import cli
from rims_rl.agents.callbacks import progress_bar
from rims_rl.cli.options import read_steps
from rims_rl.training.train import TrainOptions, check_device, train
from tests.helpers.verbs import user_error

SMALL = {"rim_size": 4, "n_envs": 2, "n_steps": 16, "batch_size": 32, "n_epochs": 1}


@pytest.mark.parametrize(("text", "number"), [("1e6", 1_000_000), ("2.5e3", 2500), ("1_000", 1000), ("64", 64)])
def test_steps_are_read_as_people_write_them(text, number):
    assert read_steps(text) == number


@pytest.mark.parametrize("text", ["1e6x", "1.5", "-5", "inf", "nan", ""])
def test_what_is_no_number_of_steps_is_one_sentence(text):
    with pytest.raises(typer.BadParameter, match="must be a whole number, such as 100000 or 1e5, got"):
        read_steps(text)


def _commands(command, names=()):
    yield names, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*names, name))


def test_no_help_is_cut_at_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = list(_commands(typer.main.get_command(cli.app)))
    assert len(found) > 15
    for names, _ in found:
        shown = CliRunner().invoke(cli.app, [*names, "--help"])
        assert shown.exit_code == 0 and "…" not in shown.output, names


def test_training_says_how_it_goes_where_the_output_is_a_file(tmp_path, monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(progress_bar, "SECONDS_BETWEEN_LINES", -1)
    monkeypatch.setattr("rich._console", Console(file=file))
    how = {"n_timesteps": 60, "eval_freq": 0, "logdir": tmp_path, "threads": 1, "settings": SMALL}
    train(TrainOptions(env="CartPole-v1", progress=True, **how))
    lines = [line for line in file.getvalue().splitlines() if " left" in line]
    assert len(lines) == 32 and lines[1].startswith("4 / 64 steps  ") and "  score " in lines[1]


@pytest.mark.parametrize(("variable", "cores", "threads"), [("1", 1, 1), ("", 1, 1), ("64", 1, 1)])
def test_threads_are_as_many_as_the_process_may_use(variable, cores, threads):
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from rims_rl.common.cores import CORES, THREADS; print(CORES, THREADS)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": variable}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(cores), str(threads)]


def test_omp_num_threads_limits_threads_and_not_jobs(monkeypatch):
    from rims_rl.common import cores

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert (cores.usable_cores(), cores.usable_threads()) == (4, 2)


@pytest.mark.parametrize("name", ["cuda", "gpu", "cuda:7"])
def test_a_device_that_is_not_there_is_one_sentence(name):
    with user_error(f"there is no device '{name}' that torch can use here; give auto or cpu"):
        check_device(name)
