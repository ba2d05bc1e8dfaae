"""A core in a file of a user's own goes through every command; a stranger's file imports nothing."""

import json
import sys

import pytest

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.training.train import TrainOptions, train
from tests.helpers.code_blocks import page_followed
from tests.helpers.verbs import evaluate_run, user_error

SMALL = {"num_rims": 2, "num_active": 1, "rim_size": 4, "n_envs": 2, "n_steps": 16, "batch_size": 32, "n_epochs": 1}
WRONG = """
import torch
from rims_rl.core import Core

class Broken(Core):
    def forward(self, x, state=None, episode_starts=None):
        return self.nothing

class Bent(Core):
    def forward(self, x, state=None, episode_starts=None):
        return x[..., :1], state

def linear(input_size, hidden_size, num_layers=1):
    return torch.nn.Linear(input_size, hidden_size)

def both_ways(input_size, hidden_size, num_layers=1):
    return torch.nn.GRU(input_size, hidden_size, num_layers, bidirectional=True)

def unwilling(input_size, hidden_size, num_layers=1):
    raise ValueError("not today")
"""


def less(line):
    small = " ".join(f"--set {key}={value}" for key, value in SMALL.items())
    return line.replace("-n 20000", f"-n 64 --threads 1 {small}").replace("-n 30000", "-n 96")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a reader of the page has when its commands have run, each for less time."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "wrong_cores.py").write_text(WRONG)
    with page_followed("docs/how-to/your_own_core.md", folder, "my_cores.py", less):
        yield folder
    sys.modules.pop("wrong_cores", None)


def test_all_commands_of_the_page_run(folder):
    run = folder / "logs/ppo/CartPole-v1_1"
    assert json.loads((run / "run.json").read_text())["steps"] == 96 and (run / "CartPole-v1.onnx").exists()
    policy, _ = load_policy(run)
    assert type(policy.core).__name__ == "Leaky" and policy.core.leak == 0.3


def test_a_factory_may_make_a_network_of_torch(folder):
    how = {"n_timesteps": 32, "eval_freq": 0, "logdir": folder, "threads": 1, "settings": SMALL}
    run = train(TrainOptions(env="CartPole-v1", core="my_cores.plain", **how)).folder
    assert len(evaluate_run(run, 2).scores) == 2


def test_somebody_elses_core_is_imported_only_with_trust_or_if_it_is_there(folder, monkeypatch):
    run = folder / "logs/ppo/CartPole-v1_1"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "somebody else"))
    assert len(evaluate_run(run, 2).scores) == 2  # my_cores is imported
    monkeypatch.delitem(sys.modules, "my_cores")
    with user_error("would import the core my_cores.Leaky, and was not trained by you; give --trust"):
        evaluate_run(run, 2)
    assert "my_cores" not in sys.modules
    assert len(evaluate_run(run, 2, trust=True).scores) == 2


@pytest.mark.parametrize(
    ("core", "words"),
    [
        ("wrong_cores.Broken", "must make a rims_rl.core.Core, .* failed at x of shape .* AttributeError: 'Broken'"),
        ("wrong_cores.Bent", r"it gave the shapes \[\(2, 3, 1\), .* instead of \[\(2, 3, 8\)"),
        ("wrong_cores.linear", "must make a rims_rl.core.Core, .*got Linear"),
        ("torch.nn.Linear", "must make a rims_rl.core.Core, .*takes no num_layers"),
        ("wrong_cores.both_ways", "must have batch_first=False, bidirectional=False and proj_size=0, got GRU"),
        ("wrong_cores.unwilling", "core 'wrong_cores.unwilling' cannot be made with .*: ValueError: not today"),
        ("wrong_cores.nothing", "core wrong_cores.nothing: the module wrong_cores has no nothing"),
        ("no_cores.nothing", "core no_cores.nothing cannot be imported: ModuleNotFoundError: No module"),
    ],
)  # fmt: skip
def test_what_is_no_core_is_one_sentence_before_a_folder_is_made(core, words, folder):
    with user_error(words):
        train(TrainOptions(env="CartPole-v1", core=core, logdir=folder / "none", settings=SMALL))
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    ("core", "option", "words"),
    [
        ("rims", "foo", "core 'rims' has no option 'foo' .value 1.; its options are .*cell, .*input_heads"),
        ("lstm", "foo", "core 'lstm' has no option 'foo' .value 1.; its options are bias, dropout"),
        ("gru", "batch_first", "core 'gru' has no option 'batch_first' .value 1.; its options are bias, dropout"),
        ("none", "foo", "core 'none' has no option 'foo' .value 1.; it has none"),
        ("wrong_cores.linear", "foo", "core 'wrong_cores.linear' has no option 'foo' .value 1.; it has none"),
    ],
)
def test_an_option_that_a_core_does_not_have_is_answered_with_those_it_has(core, option, words, folder):
    with user_error(words):
        settings = {**SMALL, f"core_kwargs.{option}": 1}
        train(TrainOptions(env="CartPole-v1", core=core, logdir=folder / "none", settings=settings))
