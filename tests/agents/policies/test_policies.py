"""Everything that users of sb3-contrib's RecurrentPPO do, done with our policies."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import sb3_contrib
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rims_rl import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy, register_core
from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.policies.encoders import GridEncoder, NatureEncoder
from rims_rl.agents.policies.rims_policies import FORMER_DEFAULTS
from rims_rl.core import LSTM, RIM, Feedforward
from rims_rl.exporting.policy_step import PolicyStep
from tests.helpers.agents import Anything, box, image

SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4}
DICT = spaces.Dict({"view": image(7, 7, 3), "mission": spaces.MultiDiscrete([4, 5]), "last": box(3)})


def make(observation_space, action_space, n_envs=2):
    return DummyVecEnv([lambda: Anything(observation_space, action_space) for _ in range(n_envs)])


def stock(policy, env, **policy_kwargs):
    return sb3_contrib.RecurrentPPO(
        policy, env, n_steps=16, batch_size=16, n_epochs=1, seed=0, policy_kwargs={**SMALL, **policy_kwargs}
    )


def algorithms(policy, env, **policy_kwargs):
    """One of each algorithm that our policies work in."""
    policy_kwargs = {**SMALL, **policy_kwargs}
    yield stock(policy, env, **policy_kwargs)
    yield RecurrentPPO(policy, env, n_steps=16, batch_size=16, n_epochs=1, seed=0, policy_kwargs=policy_kwargs)
    yield RecurrentA2C(policy, env, n_steps=16, seed=0, policy_kwargs=policy_kwargs)


ACTIONS = [spaces.Discrete(3), spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3), box(2)]


@pytest.mark.parametrize("action_space", ACTIONS, ids=str)
@pytest.mark.parametrize(
    ("policy", "observation_space"),
    [
        (MlpRimsPolicy, box(5)),
        (MlpRimsPolicy, spaces.Discrete(4)),
        (MlpRimsPolicy, spaces.MultiDiscrete([4, 3])),
        (CnnRimsPolicy, image(36, 40, 3)),
        (CnnRimsPolicy, image(4, 36, 36)),
        (MultiInputRimsPolicy, DICT),
    ],
    ids=["vector", "discrete", "multidiscrete", "image HWC", "image CHW", "dict"],
)
def test_trains_predicts_saves_and_loads_with_every_space(policy, observation_space, action_space, tmp_path):
    env = make(observation_space, action_space)
    for model in algorithms(policy, env):
        before = [p.detach().clone() for p in model.policy.parameters()]
        model.learn(64)
        assert any(not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))
        assert all(p.isfinite().all() for p in model.policy.parameters())
        model.save(tmp_path / "model")
        loaded = type(model).load(tmp_path / "model", env=env)
        observation = env.reset()
        action, state = model.predict(observation, deterministic=True)
        again, state_again = loaded.predict(observation, deterministic=True)
        np.testing.assert_array_equal(action, again)
        np.testing.assert_array_equal(state[0], state_again[0])
        assert all(env.action_space.contains(a) for a in action)
        loaded.learn(32)


@pytest.mark.parametrize("critic", ["shared", "separate", "none"])
@pytest.mark.parametrize("core", ["rims", "lstm", "gru", "none"])
def test_every_core_and_critic_trains_in_every_algorithm(core, critic):
    for model in algorithms(MlpRimsPolicy, make(box(5), spaces.Discrete(3)), core=core, critic=critic, num_layers=2):
        model.learn(64)
        assert model.policy.lstm_hidden_state_shape == (2, 1, 12)


@pytest.mark.parametrize("core", ["rims", "lstm", "gru", "none"])
def test_every_core_reads_multidiscrete_observations(core):
    for model in algorithms(MlpRimsPolicy, make(spaces.MultiDiscrete([4, 3]), spaces.Discrete(3)), core=core):
        model.learn(32)
        assert model.num_timesteps >= 32 and all(weight.isfinite().all() for weight in model.policy.parameters())


def test_actions_that_do_not_count_from_0_have_the_probabilities_of_those_that_do():
    policies = []
    for start in (0, 2, -1):
        torch.manual_seed(0)
        policies.append(MlpRimsPolicy(box(5), spaces.Discrete(3, start=start), lambda _: 1e-3, **SMALL))
    obs, starts = torch.randn(20, 5), torch.zeros(20)
    states = RNNStates(*[(torch.zeros(1, 20, 12), torch.zeros(1, 20, 12))] * 2)
    results = []
    for policy in policies:
        torch.manual_seed(1)
        actions, _, log_prob, _ = policy(obs, states, starts)
        _, again, _ = policy.evaluate_actions(obs, actions, states, starts)
        torch.testing.assert_close(log_prob, again)
        best = torch.as_tensor(policy.predict(obs.numpy(), deterministic=True)[0])
        step = PolicyStep(policy, policy.observation_space)(obs, *states.pi, starts.bool())
        torch.testing.assert_close(step["action"], best)
        results.append((actions - policy.action_space.start, best - policy.action_space.start, log_prob))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


@pytest.mark.parametrize("core", ["scoff", "brims", "rims-workspace", "rmc", "ntm", "dnc", "entnet"])
def test_other_memories_train_in_every_algorithm(core, tmp_path):
    options = {"core": core, "critic": "separate" if core == "dnc" else "shared"}
    for model in algorithms(MlpRimsPolicy, make(box(5), spaces.Discrete(3)), **options):
        before = [weight.clone() for weight in model.policy.core.parameters()]
        model.learn(32)
        changed = [not torch.equal(a, b) for a, b in zip(before, model.policy.core.parameters(), strict=True)]
        assert sum(changed) > len(changed) / 2  # not all: a short episode never reads what it wrote
        model.save(tmp_path / "model")
        state = model.predict(model.env.reset(), deterministic=True)[1]
        loaded = type(model).load(tmp_path / "model")
        assert loaded.predict(model.env.reset(), deterministic=True)[1][0].shape == state[0].shape


def test_a_core_has_its_own_number_of_layers_unless_another_is_given():
    for options, layers in (
        ({"core": "brims"}, 2), ({"core": "brims", "num_layers": 3}, 3), ({"core": "scoff"}, 1),
        ({"core": "brims", "n_lstm_layers": 2}, 2),
    ):  # fmt: skip
        policy = MlpRimsPolicy(box(5), spaces.Discrete(3), lambda _: 1e-3, **SMALL, **options)
        assert policy.num_layers == policy.core.num_layers == layers
        assert policy.lstm_hidden_state_shape[0] == layers
    with pytest.raises(ValueError, match="num_layers must be at least 2 where layers listen to the one above, got 1"):
        MlpRimsPolicy(box(5), spaces.Discrete(3), lambda _: 1e-3, core="brims", num_layers=1)


def test_policy_alone_is_saved_and_loaded_with_its_sizes(tmp_path):
    for policy, space, options in [
        (MlpRimsPolicy, box(5), {"core": "brims", "critic": "separate"}),
        (MlpRimsPolicy, box(5), {"core": "rims-workspace", "core_kwargs": {"num_slots": 2, "comm_value_size": 3}}),
        (MultiInputRimsPolicy, DICT, {"core": "scoff", "core_kwargs": {"num_schemas": 3}}),
        (MlpRimsPolicy, box(5), {"core": "gru", "critic": "separate", "num_layers": 2}),
        (MlpRimsPolicy, box(5), {"critic": "separate", "share_features_extractor": False}),
        (CnnRimsPolicy, image(3, 36, 36), {"input": "spatial", "core_kwargs": {"cell": "gru", "input_heads": 2}}),
        (MultiInputRimsPolicy, DICT, {"features_extractor_kwargs": {"element_size": 12}}),
    ]:
        model = stock(policy, make(space, spaces.Discrete(3)), **options)
        model.policy.save(tmp_path / "policy")
        loaded = policy.load(tmp_path / "policy")
        assert str(loaded) == str(model.policy)
        observation = model.env.reset()
        np.testing.assert_array_equal(
            model.policy.predict(observation, deterministic=True)[1][0],
            loaded.predict(observation, deterministic=True)[1][0],
        )


def test_predict_carries_state_and_resets_at_episode_starts():
    model = stock(MlpRimsPolicy, make(box(5), spaces.Discrete(3)))
    first, second = (np.random.default_rng(0).normal(size=(2, 2, 5))).astype(np.float32)
    _, fresh = model.predict(second)
    _, state = model.predict(first, episode_start=np.ones(2, bool))
    _, carried = model.predict(second, state, episode_start=np.zeros(2, bool))
    _, reset = model.predict(second, state, episode_start=np.array([False, True]))
    assert not np.allclose(carried[0], fresh[0])
    np.testing.assert_allclose(reset[0][:, 0], carried[0][:, 0], atol=1e-6)
    np.testing.assert_allclose(reset[0][:, 1], fresh[0][:, 1], atol=1e-6)
    single, _ = model.predict(first[0])
    assert single.shape == ()


def test_what_gymnasiums_reset_returns_is_no_observation():
    env = Anything(box(5), spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"a pair .* give only the observation"):
        stock(MlpRimsPolicy, make(box(5), spaces.Discrete(3))).predict(env.reset())


def test_evaluation_callbacks_and_normalization(tmp_path):
    env = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0))
    evaluation = VecNormalize(make_vec_env("CartPole-v1", 1, seed=1), training=False)
    for model in algorithms(MlpRimsPolicy, env):
        callbacks = [
            EvalCallback(evaluation, eval_freq=16, n_eval_episodes=1, best_model_save_path=tmp_path, verbose=0),
            CheckpointCallback(16, tmp_path, "checkpoint"),
        ]
        model.learn(64, callback=callbacks)
        mean, _ = evaluate_policy(model, evaluation, n_eval_episodes=2)
        assert mean > 0
        assert (tmp_path / "best_model.zip").exists() and list(tmp_path.glob("checkpoint_*_steps.zip"))


def test_state_dependent_exploration_works():
    env = make(box(5), box(2))
    for algorithm in (sb3_contrib.RecurrentPPO, RecurrentPPO):
        sizes = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
        model = algorithm(MlpRimsPolicy, env, **sizes, use_sde=True, policy_kwargs=SMALL).learn(64)
        assert model.num_timesteps == 64 and model.policy.use_sde


def test_heads_of_image_policies_are_linear_and_of_others_64_64():
    image_policy = stock(CnnRimsPolicy, make(image(3, 36, 36), spaces.Discrete(3))).policy
    assert isinstance(image_policy.features_extractor, NatureEncoder)
    assert len(image_policy.mlp_extractor.policy_net) == 0 and image_policy.action_net.in_features == 12
    assert stock(MlpRimsPolicy, make(box(5), spaces.Discrete(3))).policy.net_arch == {"pi": [64, 64], "vf": [64, 64]}


def test_positions_of_the_feature_map_are_the_elements_of_spatial_input():
    policy = stock(CnnRimsPolicy, make(image(3, 84, 84), spaces.Discrete(3)), input="spatial").policy
    assert (policy.features_extractor.num_elements, policy.core.input_size) == (49, 64)
    with policy.core.trace() as trace:
        policy.predict(np.zeros((3, 84, 84), np.uint8))
    assert trace.input_attention.shape == (1, 1, 3, 50)
    vector = stock(CnnRimsPolicy, make(image(3, 84, 84), spaces.Discrete(3)), input="spatial", core="lstm").policy
    assert vector.core.input_size == 49 * 64


def test_keys_of_a_dict_are_elements_and_small_grids_get_a_small_encoder():
    policy = stock(MultiInputRimsPolicy, make(DICT, spaces.Discrete(3))).policy
    assert isinstance(policy.features_extractor.encoders["view"], GridEncoder)
    with policy.core.trace() as trace:
        policy.predict(DICT.sample())
    assert trace.input_attention.shape == (1, 1, 3, len(DICT.spaces) + 1)
    large = spaces.Dict({"camera": image(3, 40, 40), "speed": box(1)})
    assert isinstance(
        stock(MultiInputRimsPolicy, make(large, box(1))).policy.features_extractor.encoders["camera"], NatureEncoder
    )


def test_channels_last_computes_the_same_as_naturecnn():
    from stable_baselines3.common.torch_layers import NatureCNN

    space = image(4, 84, 84)
    ours, theirs = NatureEncoder(space), NatureCNN(space)
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(3, 4, 84, 84)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("input_", ["vector", "spatial"])
def test_bytes_scaled_in_the_weights_are_the_same_as_scaled_images(input_):
    space = image(4, 84, 84)
    policy = CnnRimsPolicy(space, spaces.Discrete(3), lambda _: 1e-3, input=input_).double()
    obs, grads = torch.randint(0, 256, (5, *space.shape), dtype=torch.uint8), []
    for features in (policy.encode(obs), policy.features_extractor(obs.double() / 255)):
        grads.append(torch.autograd.grad(features.square().sum(), list(policy.features_extractor.parameters())))
        grads[-1] += (features,)
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("given", "critic"),
    [
        ({}, "shared"),
        ({"shared_lstm": True, "enable_critic_lstm": False}, "shared"),
        ({"enable_critic_lstm": False}, "none"),
        ({"shared_lstm": False}, "separate"),
        ({"lstm_hidden_size": 30, "n_lstm_layers": 2}, "shared"),
        ({"lstm_hidden_size": 31, "core": "lstm"}, "shared"),  # only RIMs need a multiple
        ({"lstm_hidden_size": 31, "core": "none"}, "shared"),
        ({"share_features_extractor": False}, "separate"),
        ({"share_features_extractor": False, "enable_critic_lstm": False}, "none"),
    ],
)
def test_names_of_sb3_contrib_are_mapped_onto_ours(given, critic, tmp_path):
    options = {"num_rims": 3, "num_active": 2, **given}
    policy = sb3_contrib.RecurrentPPO(MlpRimsPolicy, make(box(5), box(1)), policy_kwargs=options).policy
    assert policy.critic_kind == critic
    policy.save(tmp_path / "policy")
    assert str(MlpRimsPolicy.load(tmp_path / "policy")) == str(policy)
    assert policy.core.hidden_size == given.get("lstm_hidden_size", 300)
    assert policy.core.num_layers == given.get("n_lstm_layers", 1)


def test_all_cores_have_a_state_of_the_same_width_and_only_the_core_differs():
    policies = {
        core: stock(CnnRimsPolicy, make(image(3, 36, 36), spaces.Discrete(3)), core=core).policy
        for core in ("rims", "lstm", "gru", "none")
    }
    assert {policy.core.hidden_size for policy in policies.values()} == {12}
    assert [type(policy.core) for policy in policies.values()][::3] == [RIM, Feedforward]
    counts = {core: policy.parameter_counts() for core, policy in policies.items()}
    assert len({count["encoder"] for count in counts.values()}) == 1
    assert counts["none"]["core"] == 0 and counts["lstm"]["core"] > counts["gru"]["core"] > 0
    for core, policy in policies.items():
        assert sum(counts[core].values()) == sum(p.numel() for p in policy.parameters())


def test_parameter_counts_are_printed_at_the_start_of_training(capsys):
    env = make(box(5), spaces.Discrete(3))
    model = RecurrentPPO("MlpRimsPolicy", env, n_steps=8, batch_size=8, n_epochs=1, verbose=1, policy_kwargs=SMALL)
    capsys.readouterr()
    model.learn(16)
    total = sum(p.numel() for p in model.policy.parameters())
    assert capsys.readouterr().out.startswith(f"MlpRimsPolicy: {total:,} parameters (encoder 0, core ")


class OwnCore(LSTM):
    """A user's core, found by its dotted path."""


@pytest.mark.parametrize("core", ["mine", f"{__name__}.OwnCore"])
def test_a_users_own_core_fits_the_hole(core, tmp_path):
    register_core("mine", OwnCore)
    for model in algorithms(MlpRimsPolicy, make(box(5), spaces.Discrete(3)), core=core):
        assert type(model.policy.core).__name__ == "OwnCore"
        model.learn(32)
        model.save(tmp_path / "model")
        type(model).load(tmp_path / "model")


def test_names_of_policies_work_in_our_algorithms_and_so_do_the_stock_ones():
    env = make(box(5), spaces.Discrete(3))
    ours = RecurrentA2C("MlpRimsPolicy", env, policy_kwargs=SMALL).learn(20)
    stock = RecurrentPPO("MlpLstmPolicy", env, n_steps=16, batch_size=16, n_epochs=1).learn(64)
    assert isinstance(ours.policy, MlpRimsPolicy) and ours.num_timesteps == 20
    assert not isinstance(stock.policy, MlpRimsPolicy) and stock.num_timesteps == 64


@pytest.mark.parametrize(
    ("policy", "observation_space", "options", "words"),
    [
        (MlpRimsPolicy, box(5), {"rim_size": 4, "lstm_hidden_size": 12}, "rim_size=4 and lstm_hidden_size=12"),
        (MlpRimsPolicy, box(5), {"rim_size": None, "lstm_hidden_size": 13}, "multiple of num_rims=3, got 13; 12 would"),
        (MlpRimsPolicy, box(5), {"core": "lstn"}, "got 'lstn'; did you mean 'lstm'"),
        (MlpRimsPolicy, box(5), {"core": "transformer"}, "'transformer' has a state that grows"),
        (MlpRimsPolicy, box(5), {"num_active": 4}, "num_active must be between 1 and num_rims=3, got 4"),
        (MlpRimsPolicy, box(5), {"critic": "both"}, "critic must be .* got 'both'"),
        (
            MlpRimsPolicy,
            box(5),
            {"share_features_extractor": False, "critic": "shared"},
            'use critic="separate"',
        ),
        (MlpRimsPolicy, box(5), {"shared_lstm": True, "enable_critic_lstm": True}, "cannot both be True"),
        (CnnRimsPolicy, box(5), {}, "must be an image of at least 36 x 36 pixels"),
        (CnnRimsPolicy, image(1, 2, 7), {}, "must be an image of at least 3 x 3 pixels"),
        (CnnRimsPolicy, image(3, 36, 36), {"input": "pixels"}, "got 'pixels'"),
        (MultiInputRimsPolicy, box(5), {}, "needs a Dict observation space"),
    ],
)
def test_mistakes_get_one_clear_sentence(policy, observation_space, options, words):
    with pytest.raises(ValueError, match=words):
        stock(policy, make(observation_space, spaces.Discrete(3)), **options)


NESTED = spaces.Dict({"a": spaces.Dict({"b": box(2)})})
SHIFTED = spaces.MultiDiscrete([2, 3], start=[1, 0])


@pytest.mark.parametrize(
    ("policy", "observation_space", "action_space", "words"),
    [
        (
            "MlpRimsPolicy",
            spaces.Tuple([box(2)]),
            None,
            r"observations must be a Box, .* or a Dict of these, got Tuple",
        ),
        ("MlpRimsPolicy", spaces.Text(4), None, "observations must be .* got Text"),
        ("MultiInputRimsPolicy", NESTED, None, "observation 'a' must be a Box, .* got Dict"),
        ("MultiInputRimsPolicy", spaces.Dict({"a": spaces.Text(4)}), None, "observation 'a' must be .* got Text"),
        ("MultiInputRimsPolicy", spaces.Dict(), None, "at least one key"),
        ("MultiInputRimsPolicy", spaces.Dict({"a.b": box(2)}), None, r"observation 'a\.b' needs another name"),
        ("MultiInputRimsPolicy", spaces.Dict({"keys": box(2)}), None, "observation 'keys' needs another name"),
        ("MlpRimsPolicy", spaces.Dict({"a": box(2)}), None, "got a Dict of a; use MultiInputRims"),
        ("MlpRimsPolicy", spaces.Discrete(3, start=1), None, "observations must count from 0, got .*start=1"),
        ("MlpRimsPolicy", spaces.MultiDiscrete([[2, 3]]), None, "observations must be one row"),
        ("MlpRimsPolicy", box(), None, "observations must have at least one dimension"),
        ("MlpRimsPolicy", box(5), spaces.Dict({"a": spaces.Discrete(2)}), "actions must be a Box, .* got Dict"),
        ("MlpRimsPolicy", box(5), spaces.Tuple([spaces.Discrete(2)]), "actions must be a Box, .* got Tuple"),
        ("MlpRimsPolicy", box(5), spaces.Box(-np.inf, np.inf, (2,)), "actions must have a finite .* got Box"),
        ("MlpRimsPolicy", box(5), SHIFTED, "actions must count from 0"),
        ("MlpRimsPolicy", box(5), spaces.MultiBinary([2, 2]), "MultiBinary actions must be one row"),
    ],
)
def test_spaces_that_no_agent_can_have_are_named(policy, observation_space, action_space, words):
    action_space = action_space or spaces.Discrete(3)
    for algorithm in (RecurrentPPO, RecurrentA2C):
        with pytest.raises(ValueError, match=words):
            algorithm(policy, Anything(observation_space, action_space))
    with pytest.raises(ValueError, match=words):  # what stock algorithms call
        RecurrentPPO.policy_aliases[policy](observation_space, action_space, lambda _: 1e-3)


def test_images_in_a_dict_get_as_many_features_as_asked_for():
    space = spaces.Dict({"camera": image(3, 40, 40), "view": image(3, 7, 7), "speed": box(1)})
    options = {"features_extractor_kwargs": {"cnn_output_dim": 20, "element_size": 12}}
    model = stock(MultiInputRimsPolicy, make(space, spaces.Discrete(3)), **options)
    encoders = model.policy.features_extractor.encoders
    assert [encoders[key][0].features_dim for key in ("camera", "view")] == [20, 20]
    assert model.policy.core.input_size == 12
    model.learn(32)


@pytest.mark.parametrize("options", [{}, {"use_rms_prop": False}, {"rms_prop_eps": 1e-3}], ids=str)
def test_a2c_loads_with_the_arguments_that_it_was_made_with(options, tmp_path):
    env = make(box(5), spaces.Discrete(3))
    model = RecurrentA2C("MlpRimsPolicy", env, policy_kwargs=dict(SMALL), **options).learn(20)
    model.save(tmp_path / "model")
    loaded = RecurrentA2C.load(tmp_path / "model", env=env, policy_kwargs=dict(SMALL))
    optimizers = [each.policy.optimizer for each in (model, loaded)]
    assert type(optimizers[0]) is type(optimizers[1])
    assert optimizers[0].param_groups[0]["eps"] == optimizers[1].param_groups[0]["eps"]
    loaded.learn(20)
    with pytest.raises(ValueError, match="policy kwargs"):
        RecurrentA2C.load(tmp_path / "model", policy_kwargs={**SMALL, "rim_size": 5})


def test_a_saved_model_whose_class_is_gone_is_one_clear_sentence(tmp_path, monkeypatch):
    import sys
    import types

    module = types.ModuleType("gone_tomorrow")
    module.Policy = type("Policy", (MlpRimsPolicy,), {"__module__": "gone_tomorrow"})
    monkeypatch.setitem(sys.modules, "gone_tomorrow", module)
    model = RecurrentPPO(module.Policy, make(box(5), box(1)), n_steps=8, batch_size=8, policy_kwargs=SMALL)
    model.save(tmp_path / "model")
    monkeypatch.delitem(sys.modules, "gone_tomorrow")
    with pytest.raises(ValueError, match=r"cannot be loaded: .*gone_tomorrow"):
        RecurrentPPO.load(tmp_path / "model")


def test_a_model_of_the_former_default_core_is_not_taken_for_one_of_the_new(tmp_path, monkeypatch):
    model = stock(MlpRimsPolicy, make(box(3), spaces.Discrete(2)))
    assert model.policy.core_name == "rims-robust"
    model.save(tmp_path / "new.zip")
    assert sb3_contrib.RecurrentPPO.load(tmp_path / "new.zip").policy.core_name == "rims-robust"
    for version, former in FORMER_DEFAULTS.items():
        with monkeypatch.context() as before:
            before.setattr(MlpRimsPolicy, "_version", version)
            model.save(tmp_path / "old.zip")
            stock(MlpRimsPolicy, make(box(3), spaces.Discrete(2)), **former).save(tmp_path / "named.zip")
        words = f"another than today's 'rims-robust': say which core they have, policy_kwargs={former}"
        with pytest.raises(ValueError, match=re.escape(words)):
            sb3_contrib.RecurrentPPO.load(tmp_path / "old.zip")
        named = {"policy_kwargs": {**SMALL, **former}}
        loaded = sb3_contrib.RecurrentPPO.load(tmp_path / "named.zip", custom_objects=named)
        assert loaded.policy.core_name == former["core"]


def test_an_encoder_in_bf16_leaves_everything_else_in_float32():
    frames = torch.randint(0, 256, (6, 4, 84, 84), dtype=torch.uint8)
    policies = [
        CnnRimsPolicy(image(4, 84, 84), spaces.Discrete(3), lambda _: 1e-3, **SMALL, precision=precision)
        for precision in ("float32", "bf16")
    ]
    policies[1].load_state_dict(policies[0].state_dict())
    exact, rounded = (policy.encode(frames) for policy in policies)
    assert rounded.dtype is torch.float32 and not torch.equal(exact, rounded)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.02 * exact.detach().abs().max().item())
    rounded.sum().backward()
    exact.sum().backward()
    for one, other in zip(*(policy.features_extractor.parameters() for policy in policies), strict=True):
        assert other.dtype is other.grad.dtype is torch.float32
        assert torch.cosine_similarity(other.grad.flatten(), one.grad.flatten(), dim=0) > 0.99
    with pytest.raises(ValueError, match='precision must be "float32" or "bf16", got \'fp16\''):
        CnnRimsPolicy(image(4, 84, 84), spaces.Discrete(3), lambda _: 1e-3, precision="fp16")


def test_bf16_works_or_says_why_not_and_never_ends_the_program():
    code = """if True:
        import torch
        from gymnasium import spaces
        from rims_rl import CnnRimsPolicy
        space = spaces.Box(0, 255, (4, 84, 84), "uint8")
        policy = CnnRimsPolicy(space, spaces.Discrete(3), lambda _: 1e-3, precision="bf16")
        print(policy.encode(torch.zeros(8, 4, 84, 84, dtype=torch.uint8)).shape)
    """
    env = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "torch.Size([8, 512])\n") or (
        run.returncode == 1 and "Start with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in run.stderr
    )
