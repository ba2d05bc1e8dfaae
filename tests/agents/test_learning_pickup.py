"""RIMs learn the pick-up task in a small room, from the mission and what they see."""

import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env

from rims_rl import zoo
from rims_rl.agents import RecurrentPPO
from rims_rl.envs.minigrid import MinigridObservation

SMALL = {"room_size": 5, "num_distractors": 1}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_rims_learn_to_pick_up_the_right_one_of_two():
    """Who does not read the mission is right half of the time at best."""
    config = zoo.load("PickupKnown", "ppo").config
    envs = make_vec_env(
        "RimsRL/Pickup-Known-v0", config.n_envs, seed=0, env_kwargs=SMALL, wrapper_class=MinigridObservation
    )
    model = RecurrentPPO(
        config.policy, envs, seed=0, policy_kwargs=config.policy_arguments(), **config.algorithm_kwargs()
    )
    model.learn(200_000)
    success = np.mean(model.ep_success_buffer)
    print(f"success in the last {len(model.ep_success_buffer)} episodes: {success}")
    assert success >= 0.85
