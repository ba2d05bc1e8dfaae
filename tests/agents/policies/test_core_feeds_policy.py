"""The authors' released Atari agent ignores its RIMs: nothing in this file would pass there.

For every policy class and every algorithm: gradients of the policy loss and of the value loss reach every RIM, the
state changes what the agent does and what it expects, and without the core's output the agent is blind.
"""

import numpy as np
import pytest
import sb3_contrib
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.exporting.policy_step import PolicyStep
from tests.helpers.agents import Anything, box, image

CASES = {
    "vector": (MlpRimsPolicy, box(5), {}),
    "gru": (MlpRimsPolicy, box(5), {"core_kwargs": {"cell": "gru"}}),
    "scoff": (MlpRimsPolicy, box(5), {"core": "scoff"}),
    "brims": (MlpRimsPolicy, box(5), {"core": "brims"}),
    "workspace": (MlpRimsPolicy, box(5), {"core": "rims-workspace"}),
    "image": (CnnRimsPolicy, image(3, 36, 36), {}),
    "spatial": (CnnRimsPolicy, image(3, 52, 52), {"input": "spatial"}),
    "dict": (MultiInputRimsPolicy, spaces.Dict({"a": box(3), "b": image(3, 7, 7)}), {}),
}
ALGORITHMS = {"stock ppo": sb3_contrib.RecurrentPPO, "ppo": RecurrentPPO, "a2c": RecurrentA2C}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def make_model(algorithm, case):
    policy, space, options = case
    env = DummyVecEnv([lambda: Anything(space, spaces.Discrete(3))] * 4)
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 4, "net_arch": [], **options}
    model = ALGORITHMS[algorithm](policy, env, n_steps=16, seed=2, policy_kwargs=kwargs)
    with torch.no_grad():  # so that attention differs between RIMs from the start
        model.policy.core.layers[0].input_query.mul_(5)
        model.policy.action_net.weight.mul_(100)
    return model


def random_state(policy):
    """As in the middle of four episodes."""
    return tuple(torch.randn(policy.core.num_layers, 4, policy.core.hidden_size) for _ in "hc")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("loss", ["policy", "value"])
def test_every_weight_of_every_rim_gets_gradient_from_both_losses(algorithm, loss, case):
    model = make_model(algorithm, case)
    _, callback = model._setup_learn(1)
    # As in the middle of episodes: from a zero state the first step gives some weights exactly no gradient, rightly.
    model._last_lstm_states = RNNStates(random_state(model.policy), random_state(model.policy))
    model._last_episode_starts[:] = False
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    (data,) = model.rollout_buffer.get(None)
    with model.policy.core.trace() as trace:
        values, log_prob, _ = model.policy.evaluate_actions(
            data.observations, data.actions.long().flatten(), data.lstm_states, data.episode_starts
        )
    assert trace.active.flatten(0, 1).any(0).all(), "every RIM should have been active in the rollout"
    assert not trace.active.all(), "but not always"
    mask = data.mask > 0
    losses = {
        "policy": -(data.advantages * log_prob)[mask].mean(),
        "value": (values.flatten() - data.returns)[mask].pow(2).mean(),
    }
    model.policy.zero_grad()
    losses[loss].backward()
    for name, parameter in model.policy.core.named_parameters():
        parts = parameter.grad.unbind(0) if parameter.shape[0] == 3 else [parameter.grad]
        for k, part in enumerate(parts):
            assert part.abs().sum() > 0, f"RIM {k} gets no gradient in {name}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_update_changes_every_weight_of_the_core(algorithm, case):
    model = make_model(algorithm, case)
    before = {name: p.detach().clone() for name, p in model.policy.core.named_parameters()}
    model.learn(model.n_steps * 4 * 2)
    for name, parameter in model.policy.core.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def first_observations(model):
    return model.policy.obs_to_tensor(model.env.reset())[0]


def test_the_state_changes_actions_and_value(case):
    policy = (model := make_model("ppo", case)).policy
    obs, starts = first_observations(model), torch.zeros(4)
    states = [random_state(policy) for _ in range(2)]
    logits = [policy.get_distribution(obs, state, starts)[0].distribution.logits for state in states]
    values = [policy.predict_values(obs, state, starts) for state in states]
    assert (logits[0] - logits[1]).abs().amin() > 0 and (values[0] - values[1]).abs().amin() > 0


def test_predict_depends_on_the_state(case):
    model = make_model("ppo", case)
    observation = model.env.reset()
    generator = np.random.default_rng(0)
    actions = set()
    for _ in range(20):
        state = tuple(3 * generator.normal(size=random_state(model.policy)[0].shape) for _ in range(2))
        action, _ = model.predict(observation, state, np.zeros(4, bool), deterministic=True)
        actions.add(tuple(action))
    assert len(actions) > 1


def test_without_the_cores_output_the_policy_is_blind(case):
    policy = (model := make_model("ppo", case)).policy
    state, starts = random_state(policy), torch.zeros(4)
    logits = lambda: policy.get_distribution(first_observations(model), state, starts)[0].distribution.logits  # noqa: E731
    assert not torch.equal(logits()[0], logits()[1])
    policy.core.register_forward_hook(lambda module, inputs, result: (torch.zeros_like(result[0]), result[1]))
    blind = torch.cat([logits(), logits()])
    assert torch.equal(blind, blind[:1].expand_as(blind))
    values = policy.predict_values(first_observations(model), state, starts)
    assert torch.equal(values, values[:1].expand_as(values))


@pytest.fixture(params=["ppo", "a2c"])
def exported(request, case):
    """The step that every export holds; tests/test_export.py compares files with it."""
    model = make_model(request.param, case)
    observations = model.env.reset()
    is_dict = isinstance(observations, dict)
    tensors = {k: torch.as_tensor(v) for k, v in observations.items()} if is_dict else torch.as_tensor(observations)
    step = PolicyStep(model.policy, model.observation_space)
    return model.policy, lambda h, c: step(tensors, h, c, torch.zeros(4, dtype=torch.bool))


def test_the_state_changes_logits_and_value_of_the_exported_step(exported):
    policy, step = exported
    first, second = (step(*random_state(policy)) for _ in range(2))
    for output in ("logits", "value"):
        assert (first[output] - second[output]).abs().amin() > 0, output


def test_without_the_cores_output_the_exported_step_is_blind(exported, monkeypatch):
    policy, step = exported
    state = [part[:, :1].expand_as(part) for part in random_state(policy)]  # the same for all: observations differ
    seen = step(*state)
    read = policy.core.step
    monkeypatch.setattr(policy.core, "step", lambda *x: (result := read(*x))._replace(h=torch.zeros_like(result.h)))
    blind = step(*state)
    for output in ("logits", "value"):
        assert not torch.equal(seen[output][0], seen[output][1]), output
        assert torch.equal(blind[output], blind[output][:1].expand_as(blind[output])), output
