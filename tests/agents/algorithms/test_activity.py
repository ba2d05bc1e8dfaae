"""Who is active in the rollout and in the update."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env

from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.algorithms.activity import flips

RIMS = {"num_rims": 4, "num_active": 2, "rim_size": 4}


def make_model(policy=None, **options):
    settings = {"n_steps": 32, "batch_size": 32, "n_epochs": 3, "learning_rate": 3e-3, "seed": 0, **options}
    return RecurrentPPO(
        "MlpRimsPolicy", make_vec_env("CartPole-v1", 4), policy_kwargs={**RIMS, **(policy or {})}, **settings
    )


def learn(model, steps=128):
    """The numbers of the last update."""
    model.learn(steps)
    return dict(model.logger.name_to_value)


def active_now(model, data):
    with torch.no_grad(), model._activity().watched() as watched:
        model.policy.evaluate_actions(
            data.observations, data.actions.long().flatten(), data.lstm_states, data.episode_starts
        )
    return watched.active()


@pytest.mark.parametrize("policy", [{}, {"critic": "separate"}, {"num_layers": 2}], ids=str)
def test_the_buffer_knows_who_was_active(policy):
    model = make_model(policy, sequence_length=8)
    _, callback = model._setup_learn(128)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    for data in model.rollout_buffer.get(32):
        assert data.active.shape == (8, 4, 8 if policy else 4)
        assert flips(data.active, active_now(model, data)) == 0


def test_an_update_says_how_many_masks_flip_and_how_far_its_first_ratio_is_from_one():
    logged = learn(make_model(), 256)
    epochs = [logged[f"rims/mask_flips_epoch_{epoch}"] for epoch in (1, 2, 3)]
    assert all(0 <= share <= 1 for share in epochs) and epochs[2] > 0
    assert logged["rims/mask_flips"] == pytest.approx(np.mean(epochs))
    assert logged["train/first_ratio"] < 1e-4  # the same weights, and here the same RIMs


def test_replayed_the_rollouts_rims_are_active_in_every_epoch():
    model = make_model(replay_active=True)
    update, seen = model._loss, []

    def watch(data, epoch, activity, logged):
        with activity.watched() as watched:
            result = update(data, epoch, activity, logged)
        seen.append(flips(data.active, watched.active()))
        return result

    model._loss = watch
    logged = learn(model)
    assert len(seen) == 12 and set(seen) == {0.0}
    assert "rims/mask_flips" not in logged


@pytest.mark.parametrize("policy", [{"core": "lstm"}, {"num_active": 4}], ids=str)
def test_where_nobody_competes_there_is_nothing_to_flip_or_replay(policy):
    plain = make_model(policy)
    logged = learn(plain)
    replayed = make_model(policy, replay_active=True)
    learn(replayed)
    assert not any(name.startswith("rims/mask") for name in logged)
    for a, b in zip(plain.policy.parameters(), replayed.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_replay_that_cannot_be_is_one_sentence():
    from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer

    with pytest.raises(ValueError, match="replay_active needs our own rollout buffer"):
        make_model(replay_active=True, rollout_buffer_class=RecurrentRolloutBuffer)
    with pytest.raises(ValueError, match="A2C updates once"):
        RecurrentA2C("MlpRimsPolicy", make_vec_env("CartPole-v1", 1), replay_active=True)
