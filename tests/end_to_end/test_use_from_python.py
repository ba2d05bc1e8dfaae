"""The verbs are functions: what docs/how-to/use_from_python.md shows, runs, also outside the main thread."""

import ast
import importlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rims_rl
from rims_rl import EvaluateOptions, ExportOptions, TrainOptions, UserError, evaluate, export, runtime, train
from tests.helpers.code_blocks import ROOT, run_python_blocks

PAGE = (ROOT / "docs/how-to/use_from_python.md").read_text()
SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4, "n_envs": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 1}


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = run_python_blocks("docs/how-to/use_from_python.md")
    assert namespace["result"].folder == Path("logs/ppo/CartPole-v1_1")
    assert namespace["score"].scores and namespace["made"].file.exists() and namespace["longer"].steps >= 2_000


def test_the_page_names_what_there_is():
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 10
    for verb, module, options, returns in rows:
        verb, home = getattr(importlib.import_module(module), verb), importlib.import_module(module)
        assert verb.__annotations__["options"] == options
        if module == "rims_rl":
            assert options in rims_rl.__all__ and hasattr(home, options)
        if result := re.match(r"`(\w+)`: (.*)", returns):
            assert verb.__annotations__["return"] == result[1]
            made = getattr(importlib.import_module(verb.__module__), result[1])
            known = {*getattr(made, "model_fields", ()), *getattr(made, "__dataclass_fields__", ()), *dir(made)}
            assert set(re.findall(r"\w+", result[2])) <= known


def test_an_agent_is_trained_evaluated_and_exported_in_a_thread_without_a_word(tmp_path, capfd):
    def work():
        trained = train(TrainOptions(env="CartPole-v1", n_timesteps=256, settings=SMALL, logdir=tmp_path, threads=1))
        score = evaluate(EvaluateOptions(run=trained.folder, episodes=4, threads=1))
        return trained, score, export(ExportOptions(run=trained.folder, check_steps=20))

    with ThreadPoolExecutor(1) as pool:
        trained, score, made = pool.submit(work).result()
    assert trained.finished and trained.steps == 256 and trained.checkpoint == 256
    rows = (trained.folder / "0.monitor.csv").read_text().splitlines()[2:]
    assert trained.scores == [float(row.split(",")[0]) for row in rows][-100:]
    assert json.loads(score.file.read_text())["scores"] == score.scores and len(score.scores) == 4
    assert runtime.load(made.file).description["steps"] == 256 and made.difference < 1e-5
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"env": "CartPole-v1", "sed": 1}, "there is no option 'sed'; did you mean seed?"),
        ({}, "`env` is missing"),
        ({"env": "Pong", "seed": -1}, "`seed` must be greater than or equal to 0, got -1"),
        ({"env": "Pong", "settings": {"n_stpes": 5}}, "`settings`: there is no key 'n_stpes' (value 5); did you mean"),
        ({"env": "Pong", "observation": "rgb"}, "`observation` rgb is for MiniGrid and BabyAI"),
        ({"env": "Pong", "carry": "core=freeze"}, "`carry` core=freeze says what to take over, and `init_from`"),
        ({"env": "Pong", "columns": ["a"], "init_from": "b"}, "`columns` and `init_from` are two ways"),
    ],
)
def test_mistakes_are_one_sentence_in_the_words_of_python(options, sentence):
    with pytest.raises(UserError) as error:
        train(TrainOptions(**options))
    assert str(error.value).startswith(sentence)


def test_no_message_of_the_library_names_a_flag():
    """Names of options are in backticks, and the command line makes flags of them."""
    paths = [path for folder in ("agents", "envs", "rims_rl") for path in (ROOT / folder).rglob("*.py")]
    messages = [
        (path, text.value)
        for path in paths
        if "cli" not in path.relative_to(ROOT).parts
        for raised in ast.walk(ast.parse(path.read_text()))
        if isinstance(raised, ast.Raise)
        for text in ast.walk(raised)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert len(messages) > 200
    flagged = [message for message in messages if re.search(r"(?<!\S)--[a-z]", message[1])]
    assert not [message for message in flagged if "ray start" not in message[1]]  # a command of Ray, to be typed
