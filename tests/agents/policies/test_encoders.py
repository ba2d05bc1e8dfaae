"""Encoders of small integers: MiniGrid's symbolic views and missions."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rims_rl.envs  # noqa: F401  registers Pickup
from rims_rl import MultiInputRimsPolicy
from rims_rl.agents.policies.encoders import CodeGridEncoder, GridEncoder, NatureEncoder, WordsEncoder, is_codes
from rims_rl.envs.minigrid.observation import MinigridObservation
from tests.helpers.agents import image


def observed(form):
    return MinigridObservation(gym.make("RimsRL/Pickup-NewShape-v0"), form)


def policy_for(space):
    torch.manual_seed(0)
    return MultiInputRimsPolicy(space, spaces.Discrete(4), lambda _: 1e-3, num_rims=3, num_active=2, rim_size=4)


def test_bytes_with_other_bounds_than_a_picture_s_are_codes():
    space = observed("symbolic").observation_space
    assert is_codes(space["image"]) and is_codes(space["mission"])
    assert not is_codes(image(7, 7, 3)) and not is_codes(spaces.Box(0, 1, (3,))) and not is_codes(spaces.Discrete(3))
    encoders = policy_for(space).features_extractor.encoders
    assert isinstance(encoders["image"], CodeGridEncoder) and isinstance(encoders["mission"], WordsEncoder)
    assert isinstance(policy_for(observed("rgb").observation_space).features_extractor.encoders["image"], NatureEncoder)


def test_a_grid_of_codes_is_one_hot_planes():
    env = observed("symbolic")
    view = torch.as_tensor(env.reset(seed=0)[0]["image"])[None].float()
    encoder = CodeGridEncoder(env.observation_space["image"])
    plain = GridEncoder(spaces.Box(0, 1, (12 + 7 + 3, 5, 5)))
    plain.load_state_dict(encoder.state_dict())
    planes = torch.zeros(1, 22, 5, 5)
    for x in range(5):
        for y in range(5):
            shape, colour, state = view[0, x, y].int().tolist()
            planes[0, [shape, 12 + colour, 19 + state], x, y] = 1
    torch.testing.assert_close(encoder(view), plain(planes))


def test_the_policy_sees_codes_as_they_are_and_every_cell_and_word_counts():
    """Divided by 255, as Stable-Baselines3 does with pictures, all codes would be zero."""
    env = observed("symbolic")
    observation, _ = env.reset(seed=0)
    policy = policy_for(env.observation_space)

    def value(changed):
        with torch.no_grad():
            obs, _ = policy.obs_to_tensor(changed)
            state = (torch.zeros(1, 1, 12), torch.zeros(1, 1, 12))
            return policy.predict_values(obs, state, torch.ones(1)).item()

    before = value(observation)
    for key, place in (("image", (2, 2, 0)), ("image", (2, 2, 1)), ("mission", 3), ("mission", 4)):
        changed = {name: np.array(array) for name, array in observation.items()}
        changed[key][place] += 1
        assert value(changed) != before


def test_no_word_is_zero_and_stays_zero():
    encoder = WordsEncoder(spaces.Box(0, 9, (3,), np.uint8))
    optimizer = torch.optim.Adam(encoder.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        encoder(torch.tensor([[1.0, 0.0, 0.0]])).sum().backward()
        optimizer.step()
    assert not encoder.words.weight[0].any() and encoder.words.weight[1].any()


@pytest.mark.parametrize("form", ["symbolic", "rgb"])
def test_entries_are_elements_to_attend_to(form):
    env = observed(form)
    policy = policy_for(env.observation_space)
    with policy.core.trace() as trace:
        policy.predict(env.reset(seed=0)[0])
    assert trace.input_attention.shape == (1, 1, 3, 2 + 1)  # image, mission and null
