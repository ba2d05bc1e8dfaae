"""Sequences of one length, with the right states at their beginnings."""

import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.agents import RecurrentPPO
from tests.agents.tasks import Anything, box, image


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
        ({"batch_size": 30}, r"batch_size must divide n_steps \* n_envs = 72, .* got 30; 24 would do"),
        ({"sequence_length": 5}, "sequence_length must divide n_steps=24 and batch_size=24, got 5; 24 would do"),
        ({"sequence_length": 0}, "got 0"),
        ({"batch_size": 12, "sequence_length": 24}, "batch_size=12, got 24; 12 would do"),
    ],
)
def test_sizes_that_do_not_fit_are_named_with_what_would(options, words):
    with pytest.raises(ValueError, match=words):
        make_model(**options)
