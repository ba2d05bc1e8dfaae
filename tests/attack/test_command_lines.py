"""Command lines at random, from the real grammar: each does its work or says one sentence, and none takes for ever."""

import os
import random

import pytest
import typer

from rims_rl.cli import app
from tests.helpers.attacking import command

pytestmark = pytest.mark.slow

SETTINGS = ("num_rims=3", "num_active=2", "rim_size=4", "n_steps=8", "n_epochs=1", "batch_size=16")
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]
# Long by nature, or a server; `suite run` only looks at its jobs here.
LEFT_OUT = {("bench",), ("suite", "job"), ("supervised",), ("transfer",)}
ALWAYS = {
    ("train",): ["--n-timesteps", "32", "--n-envs", "2", "--eval-episodes", "1", "--threads", "1", *SMALL],
    ("evaluate",): ["--episodes", "1", "--threads", "1"],
    ("enjoy",): ["--max-steps", "4", "--threads", "1"],
    ("inspect",): ["--max-steps", "8", "--threads", "1"],
    ("suite", "run"): ["--dry-run"],
}
WORDS = [
    "CartPole-v1", "Pendulum-v1", "Pong", "PickupKnown", "MiniGrid-Empty-5x5-v0", "Blackjack-v1",
    "", "x", "-", "rims", "lstm", "none", "os.system", "ppo", "a2c", "known", "novel-colour", "all", "each", "0,2", "9",
    "symbolic", "rgb", "cpu", "cuda", "onnx", "pt2", "smoke", "lokal", "local", "encoder=finetune", "core", "=",
    "encoder=freeze,rims=0,7", "n_steps=0", "num_active=9", "learning_rate=-1", "policy_kwargs.net_arch=[4]", "a.b.c=1",
    "policy_kwargs.x=1", "core_kwargs={}", "core_kwargs.cell=gru", "gamma=nan", "policy=CnnRimsPolicy", "critic=none",
]  # fmt: skip
NUMBERS = ["-1", "0", "1", "2", "16", "99999999999999999999", "1e3", "nan", "x", ""]


def leaves(group, path=()):
    for name, each in group.commands.items():
        here = (*path, name)
        if any(here[: len(other)] == other for other in LEFT_OUT):
            continue
        if hasattr(each, "commands"):
            yield from leaves(each, here)
        else:
            yield here, each


def value_for(parameter, files, generator):
    if getattr(parameter, "is_flag", False):
        return None
    kind = str(parameter.type_descriptor).lower()
    if generator.random() < 0.8 and ("int" in kind or "float" in kind):
        return generator.choice(NUMBERS)
    return generator.choice(files if "path" in kind else [*WORDS, *files[:2]])


def line(path, leaf, files, generator):
    """Words of a command line, most of which mean something."""
    words = list(path)
    for parameter in leaf.params:
        if parameter.param_type_name == "argument":
            wanted = parameter.name in ("run", "runs") and generator.random() < 0.7
            value = files[0] if wanted else value_for(parameter, files, generator)
            if value is not None:
                words.append(value)
        elif parameter.name == "env" and generator.random() < 0.9:
            words += ["--env", generator.choice(WORDS[:6])]
        elif parameter.name != "help" and generator.random() < 0.12:
            value = value_for(parameter, files, generator)
            words += [generator.choice(parameter.opts), *([] if value is None else [value])]
    return words + ([] if "--resume" in words else ALWAYS.get(path, []))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A run, and other things that a path may lead to. The current folder is one of their own."""
    folder = tmp_path_factory.mktemp("lines")
    before = os.getcwd()
    os.chdir(folder)
    code, said = command(["train", "--env", "CartPole-v1", "--eval-freq", "0", *ALWAYS["train",]])
    assert code == 0, said
    (folder / "file").write_text("text")
    os.mkfifo(folder / "fifo")
    yield ["logs/ppo/CartPole-v1_1", "logs", "file", "nowhere", "", "/", "file/below", "out.json", "x.onnx", "x.zip"]
    os.chdir(before)


def test_random_command_lines_do_their_work_or_say_one_sentence(files):
    generator, group = random.Random(0), typer.main.get_command(app)
    commands = list(leaves(group))
    for _ in range(60):
        path, leaf = generator.choice(commands)
        words = line(path, leaf, files, generator)
        code, said = command(words)
        assert code in (0, 2) and "Traceback" not in said, f"{words}\n{said}"
