"""Cells and words as elements."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rims_rl.envs  # noqa: F401  registers Pickup
from rims_rl import MultiInputRimsPolicy
from rims_rl.agents.policies.cells_encoder import AttentionPool, CellsEncoder
from rims_rl.envs.minigrid.observation import MinigridObservation


def observed(env="RimsRL/Pickup-Known-v0", **options):
    return MinigridObservation(gym.make(env), **options)


def policy_for(space, **options):
    torch.manual_seed(0)
    return MultiInputRimsPolicy(
        space, spaces.Discrete(4), lambda _: 1e-3, num_rims=3, num_active=2, rim_size=4, input="cells", **options
    )


def test_every_cell_every_word_and_every_other_key_is_an_element():
    env = observed("MiniGrid-MultiRoom-N2-S4-v0", direction=True, goal=True)
    policy = policy_for(env.observation_space)
    encoder = policy.features_extractor
    words = env.observation_space["mission"].shape[0]
    assert encoder.num_elements == len(encoder.names) == 49 + words + 2
    assert encoder.names[:2] == ["0,0", "0,1"] and encoder.names[49] == "mission 0"
    assert encoder.names[-2:] == ["direction", "goal"]
    with policy.core.trace() as trace:
        policy.predict(env.reset(seed=0)[0])
    assert trace.input_attention.shape == (1, 1, 3, encoder.num_elements + 1)


def test_an_element_is_about_its_own_cell_or_word_alone():
    env = observed()
    encoder = CellsEncoder(env.observation_space)
    observation, _ = env.reset(seed=0)

    def elements(changed):
        with torch.no_grad():
            return encoder({key: torch.as_tensor(array)[None].float() for key, array in changed.items()})[0]

    before = elements(observation)
    for key, place, index in (("image", (3, 1, 0), 1 * 5 + 3), ("image", (0, 4, 1), 4 * 5), ("mission", 2, 25 + 2)):
        changed = {name: np.array(array) for name, array in observation.items()}
        changed[key][place] += 1
        differs = (elements(changed) != before).any(-1)
        assert differs.nonzero().flatten().tolist() == [index]


def test_a_core_of_one_vector_reads_what_learned_queries_attend_to():
    space = observed().observation_space
    policy = policy_for(space, core="lstm")
    assert isinstance(policy.features_extractor.pool, AttentionPool) and policy.core.input_size == 4 * 64
    assert policy_for(space, core="block-gru").features_extractor.pool is None, "it reads sets"
    torch.manual_seed(0)
    pool, elements = AttentionPool(3, 2), torch.randn(1, 5, 3)
    expected = []
    for query in pool.query:
        shares = torch.softmax(torch.stack([query @ (pool.key.weight @ e) for e in elements[0]]) / 3**0.5, 0)
        expected.append(sum(share * (pool.value.weight @ e) for share, e in zip(shares, elements[0], strict=True)))
    torch.testing.assert_close(pool(elements)[0], torch.cat(expected))


@pytest.mark.parametrize(("options", "words"), [({"image": "rgb"}, "got 0 of them in image, mission")])
def test_without_a_grid_of_codes_it_is_one_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        policy_for(observed(**options).observation_space)
    with pytest.raises(ValueError, match='input must be "keys" or "cells", got \'cell\''):
        MultiInputRimsPolicy(observed().observation_space, spaces.Discrete(4), lambda _: 1e-3, input="cell")
