"""Policies that play without some of their RIMs, or with some of them always active."""

import json
import sys

import numpy as np
import pytest

from rims_rl import cli
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.evaluation.drop_and_force import intervene
from tests.helpers.untrained_runs import save_untrained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return save_untrained(tmp_path_factory.mktemp("PickupKnown_1"), "PickupKnown")


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rims-rl", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return exit_.value.code


def evaluate(monkeypatch, *arguments):
    return command(monkeypatch, "evaluate", *arguments, "--episodes", 6, "--n-envs", 2, "--threads", 1, "--seed", 3)


def test_each_rim_in_turn_is_what_dropping_it_alone_gives(tmp_path, monkeypatch, capsys):
    run = save_untrained(tmp_path, "CartPole-v1", rim_size=8)  # most likely actions
    assert evaluate(monkeypatch, run, "--drop", "each") == 0
    each = json.loads((run / "drop_each.json").read_text())
    assert (run / "drop_each.png").stat().st_size > 5000
    assert list(each["removed"]) == ["none", "0", "1", "2"] and "RIM taken out" in capsys.readouterr().out
    for name, one in each["removed"].items():
        drop = [] if name == "none" else ["--drop", name]
        assert evaluate(monkeypatch, run, *drop) == 0
        alone = json.loads(
            (run / ("evaluation.json" if name == "none" else f"evaluation_drop_{name}.json")).read_text()
        )
        assert alone["drop"] == [int(k) for k in drop[1:]]
        assert (one["return"], one["return_95"]) == (alone["mean"], alone["mean_95"])
        assert one["length"] == np.mean(alone["lengths"])
        if name != "none":
            assert one["loss"] == each["removed"]["none"]["return"] - one["return"]
    assert len({one["length"] for one in each["removed"].values()}) > 1, "it makes a difference who is there"


def test_while_a_policy_plays_dropped_rims_are_zero_and_forced_ones_active(run):
    policy, _ = load_policy(run)
    observation = {key: space.sample() for key, space in policy.observation_space.spaces.items()}
    with intervene(policy, run, [0], [2]), policy.core.trace() as trace:
        state = None
        for _ in range(20):
            _, state = policy.predict(observation, state)
    h = state[0].reshape(3, 4)
    assert (h[0] == 0).all() and (h[1:] != 0).any(1).all()
    assert not trace.active[..., 0].any() and trace.active[..., 2].all()


def test_what_cannot_be_dropped_or_forced_is_one_sentence(run, tmp_path, monkeypatch, capsys):
    lstm = save_untrained(tmp_path / "lstm", "CartPole-v1", core="lstm")
    for arguments, words in (
        ((run, "--drop", "2,9"), "there is no RIM 9: RIMs are 0 to 2"),
        ((run, "--drop", "two"), "--drop takes numbers of RIMs, such as 2,3, got 'two'"),
        ((run, "--force", "0,1,2"), "at most num_active=2 RIMs can be forced, got [0, 1, 2]"),
        ((run, "--drop", "1", "--force", "1"), "RIM 1 cannot be dropped and forced"),
        ((lstm, "--drop", "each"), "lstm has the core 'lstm'; give a run with rims"),
        ((lstm, "--force", "0"), "lstm has the core 'lstm'; give a run with rims"),
        (("CartPole-v1", "--random", "--drop", "each"), "leave out --drop and --force"),
        ((run, "--variants", "all", "--drop", "1"), "leave out --drop"),
        ((run, "--drop", "each", "--out", tmp_path / "x.png"), "--out must end in .json"),
    ):
        assert evaluate(monkeypatch, *arguments) == 2
        assert words in capsys.readouterr().err
