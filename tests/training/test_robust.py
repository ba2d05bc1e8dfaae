"""What a plain user gets must not blow up: the run in which the paper's RIMs do."""

import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env

from rims_rl.agents import RecurrentPPO


def largest_state(core, learning_rate, seed):
    """After 3,840 steps of CartPole, with one shared core of 6 x 20 units."""
    model = RecurrentPPO(
        "MlpRimsPolicy",
        make_vec_env("CartPole-v1", 1, seed=seed),
        n_steps=64,
        batch_size=64,
        n_epochs=4,
        learning_rate=learning_rate,
        seed=seed,
        policy_kwargs={"core": core, "rim_size": 20},
    )
    model.learn(3840)
    states = model._last_lstm_states
    return max(part.abs().max().item() for part in (*states.pi, *states.vf))


@pytest.mark.slow
@pytest.mark.parametrize("learning_rate", [3e-4, 1e-3, 3e-3])
def test_the_state_of_robust_rims_stays_bounded(learning_rate):
    torch.set_num_threads(1)
    states = [largest_state("rims-robust", learning_rate, seed) for seed in range(3)]
    assert max(states) < 100, states  # NaN is not
