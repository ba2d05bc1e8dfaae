"""Callbacks that a user brings: what they get, and what is said of those that are none."""

import json
import struct
import sys

import pytest

from rims_rl.training.train import ResumeOptions, TrainOptions, resume, train
from tests.helpers.verbs import user_error

SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4, "n_envs": 2, "n_steps": 16, "batch_size": 32, "n_epochs": 1}
MODULE = """\
from stable_baselines3.common.callbacks import BaseCallback

class Count(BaseCallback):
    made = []
    def __init__(self, stop=None, words=()):
        super().__init__()
        self.stop, self.words, self.seen = stop, words, []
        self.made.append(self)
    def _on_step(self):
        self.seen.append(self.num_timesteps)
        return self.stop is None or self.num_timesteps < self.stop

def nothing():
    return 3
"""


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """The module ``my_callbacks``, in the current folder."""
    (tmp_path / "my_callbacks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield lambda: sys.modules["my_callbacks"].Count.made
    sys.modules.pop("my_callbacks", None)


def options(*callbacks):
    return TrainOptions(env="CartPole-v1", n_timesteps=64, settings=SMALL, eval_freq=0, callbacks=list(callbacks))


def test_callbacks_see_every_step_and_get_their_arguments(counted):
    train(options("my_callbacks.Count:words=[a, b], stop=1000", "my_callbacks.Count"))
    first, second = counted()
    assert first.words == ["a", "b"] and first.stop == 1000 and second.words == ()
    assert first.seen == second.seen == list(range(2, 65, 2))


def test_a_callback_can_end_training_and_resuming_wants_it_once_more(counted):
    result = train(options("my_callbacks.Count:stop=32"))
    assert result.steps == 32
    resume(ResumeOptions(run=result.folder, n_timesteps=96, callbacks=["my_callbacks.Count"]))
    assert counted()[-1].seen == list(range(34, 97, 2))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Count", "--callback must be a dotted path, such as my_module.MyClass or torch.nn.ReLU, got 'Count'"),
        ("nowhere.Count", "--callback nowhere.Count cannot be imported: .*; start where the file is"),
        ("my_callbacks.Cuont", "the module my_callbacks has no Cuont"),
        ("my_callbacks.Count:stopp=3", "cannot be made: TypeError: .*stopp"),
        ("my_callbacks.Count:3", "'3' must be key=value"),
        ("my_callbacks.nothing", r"must make a callback of Stable-Baselines3 \(BaseCallback\), got int"),
    ],
)
def test_what_is_no_callback_is_one_sentence_before_a_folder_is_made(text, words, counted, tmp_path):
    with user_error(words):
        train(options(text))
    assert not (tmp_path / "logs").exists()


def test_weights_and_biases_gets_what_tensorboard_gets(counted, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    train(options("rims_rl.agents.callbacks.wandb_logger.WandbLogger:project=test,name=first"))
    assert wandb.run is None
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    rows = logged(file)
    assert [row["steps"] for row in rows] == [32, 64]
    assert {"rollout/ep_rew_mean", "train/loss", "rims/collapse", "time/fps"} <= set(rows[-1])


def logged(file):
    """The rows of a file of Weights & Biases: a log of LevelDB, whose first 7 bytes say whose it is."""
    from wandb.proto.wandb_internal_pb2 import Record

    contents, at, rows, parts = file.read_bytes(), 7, [], b""
    while at + 7 <= len(contents):
        if (left := 32768 - at % 32768) < 7:  # too little for one more in this block
            at += left
            continue
        length, kind = struct.unpack_from("<HB", contents, at + 4)
        parts += contents[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record.FromString(parts)
            items = record.history.item
            rows += [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}] * bool(
                items
            )
            parts = b""
    return rows
