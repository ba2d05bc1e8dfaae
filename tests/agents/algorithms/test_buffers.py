"""Sequences of one length, with the right states at their beginnings."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.algorithms.ppo import choose_length
from tests.helpers.agents import Anything, box, image


def make_model(observation_space=None, n_envs=3, **options):
    space = box(5) if observation_space is None else observation_space
    env = DummyVecEnv([lambda: Anything(space, spaces.Discrete(3))] * n_envs)
    policy = "MultiInputRimsPolicy" if isinstance(space, spaces.Dict) else "MlpRimsPolicy"
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 4}
    return RecurrentPPO(policy, env, **{"n_steps": 24, "batch_size": 24, "seed": 0, **options}, policy_kwargs=kwargs)


def collect(model):
    _, callback = model._setup_learn(1)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return model.rollout_buffer


@pytest.mark.parametrize("sequence_length", [1, 4, 12, 24, None])
@pytest.mark.parametrize("space", [None, spaces.Dict({"a": box(2), "b": image(3, 7, 7)})], ids=["vector", "dict"])
def test_replaying_stored_sequences_gives_the_values_and_log_probabilities_of_the_rollout(sequence_length, space):
    """So states where sequences begin and resets inside them are those of the rollout, and PPO's first ratio is 1."""
    model = make_model(space, sequence_length=sequence_length)
    buffer = collect(model)
    assert buffer.episode_starts[1:].any(), "episodes should end inside sequences"
    for data in buffer.get(24):
        values, log_prob, _ = model.policy.evaluate_actions(
            data.observations, data.actions.long().flatten(), data.lstm_states, data.episode_starts
        )
        np.testing.assert_allclose(values.detach().flatten(), data.old_values, atol=1e-5)
        np.testing.assert_allclose(log_prob.detach(), data.old_log_prob, atol=1e-5)


def test_minibatches_have_one_size_and_cover_everything_once():
    model = make_model(sequence_length=6)
    buffer = collect(model)
    buffer.returns[:] = np.arange(72).reshape(24, 3)
    batches = list(buffer.get(24))
    assert [len(batch.returns) for batch in batches] == [24, 24, 24]
    assert [batch.lstm_states.pi[0].shape for batch in batches] == [(1, 4, 12)] * 3
    assert sorted(np.concatenate([batch.returns for batch in batches])) == list(range(72))
    assert all((batch.mask == 1).all() for batch in batches)
    first, second = (np.concatenate([batch.returns for batch in buffer.get(24)]) for _ in range(2))
    assert not np.array_equal(first, second), "sequences come in another order each time"
    for sequence in first.reshape(-1, 6):
        assert (np.diff(sequence) == 3).all(), "but inside a sequence time goes on"


def test_observations_stay_uint8_and_states_are_kept_once_per_sequence():
    model = make_model(spaces.Dict({"image": image(3, 7, 7)}), sequence_length=12)
    buffer = collect(model)
    assert buffer.observations["image"].dtype == np.uint8
    assert len(buffer.states) == 2 and not hasattr(buffer, "hidden_states_pi")


def test_another_buffer_class_is_accepted():
    class Mine(RecurrentRolloutBuffer):
        pass

    model = make_model(rollout_buffer_class=Mine, n_epochs=1)
    model.learn(72)
    assert type(model.rollout_buffer) is Mine


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sequence_length": 5}, "sequence_length must divide n_steps=24 and .* batch_size=24, got 5; 24 would do"),
        ({"sequence_length": 0}, "got 0"),
        ({"batch_size": 12, "sequence_length": 24}, "batch_size=12, got 24; 12 would do"),
        ({"batch_size": 1}, "normalize_advantage needs minibatches of at least two steps"),
        ({"n_steps": 5, "n_envs": 1, "batch_size": 4}, "at least two steps, .* minibatches of 4 and 1"),
    ],
)
def test_sizes_that_do_not_fit_are_named_with_what_would(options, words):
    with pytest.raises(ValueError, match=words):
        make_model(**options)


@pytest.mark.parametrize(
    ("n_steps", "batch_size", "length"),
    [
        *[(128, 128, 128), (128, 256, 128), (128, 64, 64), (128, 96, 32), (192, 128, 64), (5, 5, 5)],  # both divide
        *[(100, 64, 50), (100, 256, 100), (200, 128, 100)],  # smaller minibatches for the sake of longer sequences
        (127, 64, 127),  # a prime: nothing else is left
    ],
)
def test_sequences_are_as_long_as_minibatches_of_about_the_right_size_allow(n_steps, batch_size, length):
    assert choose_length(n_steps, batch_size) == length


@pytest.mark.parametrize(
    ("n_steps", "batch_size", "sizes", "words"),
    [
        (24, 16, [16, 16, 16, 16, 8], "gradients go back 8 steps at most.*; the last minibatch has 8 steps"),
        (23, 16, [23, 23, 23], "minibatches have 23 steps, which are whole sequences of 23"),
        (20, 14, [10] * 6, "gradients go back 10 steps at most.*; minibatches have 10 steps"),
    ],
)
def test_sizes_that_do_not_divide_train_and_are_told(n_steps, batch_size, sizes, words):
    with pytest.warns(UserWarning, match=f"n_steps={n_steps} with n_envs=3 and batch_size={batch_size}: {words}"):
        model = make_model(n_steps=n_steps, batch_size=batch_size, n_epochs=1)
    assert [len(batch.returns) for batch in collect(model).get(batch_size)] == sizes
    model.learn(n_steps * 3)
    assert all(weight.isfinite().all() for weight in model.policy.parameters())


def test_a_length_that_was_asked_for_needs_no_warning():
    with warnings.catch_warnings(record=True) as caught:
        make_model(n_steps=24, batch_size=24, sequence_length=8)
    assert not caught
