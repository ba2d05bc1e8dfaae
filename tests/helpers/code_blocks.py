"""The examples of the documentation, run as a reader would, but for less time.

A page is run from its top to its end, in one folder of its own. Blocks of ``python`` share their names. Of ``sh``,
lines that begin with ``rims-rl`` are run with ``BUDGETS`` added, which win over what the page says: fewer steps.
What would take hours even so (``ONLY_READ``) is read by the grammar of the command line, and no more; what is not ours
(``OTHERS``) is passed over. Two comments before a block say more, and are not shown::

    <!-- file: space.yml -->        the block is a file of that name
    <!-- first: import numpy -->    a line of Python that is run before it
"""

import glob
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from rims_rl import cli
from rims_rl.cli import app
from tests.helpers.attacking import command

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"((?:^<!-- (?:file|first): .*? -->\n)*)^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OTHERS = ("make", "pip", "source", "tensorboard", "ray", "chmod", "export", "git")
ONLY_READ = ("suite", "supervised", "transfer", "bench")
PPO = ["n_epochs=1", "batch_size=16"]
SIZES = ["num_rims=3", "num_active=2", "rim_size=4", "n_steps=8", "sequence_length=8"]
BUDGETS = {
    "train": ["-n", "96", "--n-envs", "2", "--eval-freq", "0", "--threads", "1"],
    "tune": [
        "-n",
        "256",
        "--n-envs",
        "2",
        "--trials",
        "2",
        "--evaluations",
        "1",
        "--eval-episodes",
        "1",
        "--jobs",
        "2",
    ],
    "imitate": [
        *("--threads", "1", "--set", "iterations=1", "--set", "episodes=1", "--set", "test_sequences=1"),
        *("--set", "strengths=[0.05]", "--set", "hidden_size=12", "--set", "side=46", "--set", "dagger_episodes=1"),
    ],
    "evaluate": ["--episodes", "2", "--n-envs", "2", "--threads", "1"],
    "enjoy": ["--max-steps", "8", "--episodes", "1", "--threads", "1"],
    "inspect": ["--max-steps", "24", "--threads", "1"],
}


def run_python_blocks(page: str) -> dict[str, Any]:
    """Run all blocks of Python in a page, one after the other. Returns the names that they leave."""
    names: dict[str, Any] = {}
    for _, language, block in BLOCK.findall((ROOT / page).read_text()):
        if language == "python":
            exec(compile(block, page, "exec"), names)
    return names


def run_page(page: Path) -> int:
    """Run all blocks of a page in the current folder; how many."""
    text, names, count = page.read_text(), {}, 0
    make_runs(text)
    blocks = BLOCK.findall(text)
    for comments, _, block in blocks:  # a page may show a file after the command that reads it
        for name in re.findall(r"<!-- file: (.*?) -->", comments):
            Path(name).write_text(block)
    for comments, language, block in blocks:
        said = re.findall(r"<!-- (file|first): (.*?) -->", comments)
        for code in (value for kind, value in said if kind == "first"):
            exec(compile(code, page.name, "exec"), names)
        count += language in ("python", "sh", "yaml")
        if any(kind == "file" for kind, _ in said):
            continue
        if language == "python":
            exec(compile(block, page.name, "exec"), names)
        elif language == "sh":
            for line in re.sub(r"\\\n", " ", block).splitlines():
                run_line(line)
        elif language == "yaml":
            yaml.safe_load(block)
        else:
            assert language in ("", "text") or language[0] == "{", f"{page}: nothing runs blocks of {language}"
    return count


def run_line(line: str) -> None:
    """A line of a shell."""
    words = [
        found
        for word in shlex.split(line, comments=True)
        for found in (sorted(glob.glob(word)) if "*" in word else [word.replace("RUN", "logs/ppo/CartPole-v1_1")])
    ]
    if not words or words[0] in OTHERS:
        return
    assert words[0] == "rims-rl", f"nothing runs the line {line!r}"
    words = words[1:]
    if words[0] in ONLY_READ:
        read_words(words)
        return
    code, said = command([*words, *budget(words)], seconds=240)
    assert code == 0, f"{line}\n{said}"


def budget(words: list[str]) -> list[str]:
    more = BUDGETS.get(words[0], [])
    if words[0] != "train":
        return more
    if "--resume" in words:
        return ["-n", "160"]
    settings = SIZES if "a2c" in words else SIZES + PPO
    return [*more, *(word for setting in settings for word in ("--set", setting))]


def read_words(words: list[str]) -> None:
    """What the grammar says of a command line; a mistake in it raises."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("rims-rl", list(words), resilient_parsing=False)
    while hasattr(group, "commands") and (rest := [*context._protected_args, *context.args]):
        name, group, arguments = group.resolve_command(context, rest)
        context = group.make_context(name, arguments, parent=context)


def make_runs(text: str) -> None:
    """The runs that a page uses and does not train itself."""
    shells = "".join(block for _, language, block in BLOCK.findall(text) if language == "sh")
    trained = {env.split(":")[-1].replace("/", "-") for env in re.findall(r"rims-rl train --env (\S+)", shells)}
    named = set(re.findall(r"logs/ppo/([\w.-]+)_[\d*]", text)) | (
        {"CartPole-v1"} if re.search(r"\bRUN\b", text) else set()
    )
    for env in sorted(named - trained):
        run_line(f"rims-rl train --env {env} --seed {len(os.listdir('.'))}")


@contextmanager
def page_followed(page: str, folder: Path, file: str, shorten: Callable[[str], str]) -> Iterator[None]:
    """Write the page's block of Python to ``file`` in ``folder``, go there, and run its commands, each as ``shorten``
    makes it. Inside, all is as it then is for a reader."""
    text = (ROOT / page).read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr(sys, "path", list(sys.path))
        (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (folder / file).write_text(code)
        (commands,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in commands.splitlines():
            patch.setattr(sys, "argv", shlex.split(shorten(line)))
            with pytest.raises(SystemExit) as end:
                cli.main()
            assert end.value.code == 0, line
        yield
    sys.modules.pop(file.removesuffix(".py"), None)
