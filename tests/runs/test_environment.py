"""The environment that a saved policy names."""

import pytest

from rims_rl.agents.saved.description import check_description
from rims_rl.common.errors import UserError
from rims_rl.envs.names import resolve
from rims_rl.runs.environment import resolve_saved


def describe(**fields):
    space = {"type": "Discrete", "n": 2, "start": 0}
    spaces = {"observation_space": space, "action_space": space}
    policy = {"format": 1, "policy": "MlpRimsPolicy", "policy_kwargs": {}, "use_sde": False, **spaces}
    return check_description({**policy, **fields}, "a description")


def test_a_saved_policy_gives_back_the_options_of_its_environment():
    env = resolve("Breakout", backend="sb3", game_mode=4, difficulty=1)
    description = describe(env="Breakout", env_options=env.options)
    assert resolve_saved(description) == resolve_saved(description, game_mode=None) == env
    assert resolve_saved(description, game_mode=8) == env._replace(game_mode=8)
    assert resolve_saved(describe(env="Breakout")) == resolve("Breakout"), "runs of before there were options"


@pytest.mark.parametrize(
    ("name", "options"), [("PickupKnown", {"observation": "rgb"}), ("Pong", {"distractors": "known"})]
)
def test_so_it_does_with_observations_and_distractors(name, options):
    env = resolve(name, **options)
    assert resolve_saved(describe(env=name, env_options=env.options)) == env


def test_a_policy_that_does_not_name_its_environment_is_one_sentence():
    with pytest.raises(UserError, match="does not say which environment"):
        resolve_saved(describe())


@pytest.mark.parametrize(
    ("fields", "words"), [({"env": 3}, "env: "), ({"env": "Pong", "env_options": 3}, "env_options: ")]
)
def test_a_name_that_is_none_is_one_sentence(fields, words):
    with pytest.raises(UserError, match=f"does not describe a policy that can be built: {words}"):
        describe(**fields)


def test_the_old_spelling_of_normalization_is_read_and_the_new_one_written():
    statistics = {"observations": {"": {"mean": [0.5], "var": [2.0], "count": 3.0}}, "clip": 10.0, "epsilon": 1e-8}
    box = {"type": "Box", "low": 0.0, "high": 1.0, "shape": [1], "dtype": "float32"}
    old = describe(observation_space=box, normalisation=statistics)
    assert old == describe(observation_space=box, normalization=statistics)
    assert old.to_json()["normalization"] == statistics and "normalisation" not in old.to_json()
