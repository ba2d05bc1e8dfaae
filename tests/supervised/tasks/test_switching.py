"""Linear systems that take turns."""

import numpy as np
import pytest
import torch

from rims_rl.supervised.task import generator, load
from rims_rl.supervised.tasks.switching import DECAY, Switching, shares, systems, turns


def make(**settings):
    return Switching(load(Switching, {"hidden_size": 24, "embedding_size": 8, **settings}))


def test_only_the_system_whose_turn_it_is_moves_and_its_state_is_asked_for():
    task = make(rules=3)
    x, states = task.batch(seed=0, index=0)
    assert x.shape == (20, 64, 5) and states.shape == (20, 64, 4)
    move, enter = (part.double().numpy() for part in systems(3, 4, 2))
    for row in range(5):
        memory = np.zeros((3, 4))
        for t in range(20):
            (rule,) = np.flatnonzero(x[t, row, 2:].numpy())
            memory[rule] = move[rule] @ memory[rule] + enter[rule] @ x[t, row, :2].double().numpy()
            np.testing.assert_allclose(states[t, row], memory[rule], atol=1e-5)


def test_systems_are_stable_and_their_states_have_a_variance_of_1():
    move, _ = systems(4, 4, 2)
    assert torch.linalg.matrix_norm(move, 2).max() < DECAY + 1e-5
    _, states, _ = make(switch=0.0)._sequences(500, 300, "equal", generator(5))
    assert states[100:].square().mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("mixture", "expected"), [
    ("equal", [0.25] * 4), ("half", [0.5, 0.5, 0, 0]), ("skewed", [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
])  # fmt: skip
def test_mixtures_say_how_often_each_has_its_turn(mixture, expected):
    rules = turns(400, 200, shares(4, mixture), 0.25, generator(7))
    np.testing.assert_allclose(torch.bincount(rules.flatten(), minlength=4) / rules.numel(), expected, atol=0.02)
    same = (rules[1:] == rules[:-1]).float().mean()
    assert same == pytest.approx(0.75 + 0.25 * sum(share**2 for share in expected), abs=0.02)


def test_data_follow_from_seed_and_number_alone():
    task = make()
    assert all(map(torch.equal, task.batch(1, 2), make().batch(1, 2)))
    assert not torch.equal(task.batch(1, 2)[0], task.batch(1, 3)[0])


@pytest.mark.parametrize("core", ["rims", "lstm"])
def test_the_networks_tests_and_what_is_watched(core):
    task = make(core=core, core_kwargs={})
    network = task.network()
    with torch.no_grad():
        found = task.tests(network, 20)
        watched = task.watch(network)
    assert list(found)[:3] == ["20, equal", "20, half", "20, skewed"] and len(found) == 9
    assert all(0 <= test["explained"] <= 1 and test["mean squared error"] > 0 for test in found.values())
    assert (core == "rims") == ("alignment" in watched)


@pytest.mark.slow
def test_rims_learn_it():
    torch.manual_seed(0)
    task = make(rules=2, length=10, hidden_size=60)
    network = task.network()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    losses = []
    for index in range(400):
        loss = task.loss(network, *task.batch(0, index))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
