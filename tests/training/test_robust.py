"""What a plain user gets must not blow up: the run in which the paper's RIMs do."""

import pytest
import torch

from rims_rl.bench.bench_stability import BOUND, LEARNING_RATES, largest_state


@pytest.mark.slow
@pytest.mark.parametrize("learning_rate", LEARNING_RATES)
def test_the_state_of_robust_rims_stays_bounded(learning_rate):
    torch.set_num_threads(1)
    states = [largest_state("rims-robust", learning_rate, seed) for seed in range(3)]
    assert None not in states and max(states) < BOUND, states
