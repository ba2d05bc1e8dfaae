"""Policies without pickle: what is written comes back, and what is wrong is said in one sentence."""

import json
import pickle
import struct

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.saved.policy_files import (
    describe_policy,
    load_policy,
    read_description,
    round_weights,
    save_policy,
    save_shared,
    space_from_json,
    space_to_json,
)
from rims_rl.common.errors import Diverged, UserError
from tests.helpers.agents import Anything, box, image
from tests.helpers.attacking import Touch
from tests.helpers.verbs import user_error

SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4}


def make(policy="MlpRimsPolicy", observation_space=None, action_space=None, **kwargs):
    space = box(5) if observation_space is None else observation_space
    env = DummyVecEnv([lambda: Anything(space, action_space or spaces.Discrete(3))] * 2)
    return RecurrentPPO(policy, env, n_steps=8, batch_size=16, policy_kwargs={**SMALL, **kwargs})


def save(model, folder):
    save_policy(model.policy, folder, describe_policy(model.policy, model.policy_kwargs, env="Anything"))


@pytest.mark.parametrize(
    ("policy", "observation_space", "action_space", "kwargs"),
    [
        ("MlpRimsPolicy", None, None, {"critic": "separate", "net_arch": [8], "activation_fn": torch.nn.ReLU}),
        ("MlpRimsPolicy", None, box(2), {"core": "lstm"}),
        ("MlpRimsPolicy", None, None, {"core": "brims"}),  # two layers, which nobody says
        ("MlpRimsPolicy", None, None, {"core": "rims-workspace"}),
        ("MlpRimsPolicy", None, None, {"core": "scoff", "core_kwargs": {"num_schemas": 2}}),
        ("MlpRimsPolicy", None, None, {"core": "none"}),  # no weights before the heads
        ("MlpRimsPolicy", None, None, {"core": "none", "critic": "none", "net_arch": []}),
        ("CnnRimsPolicy", image(4, 36, 36), spaces.MultiDiscrete([2, 3]), {"input": "spatial", "core": "gru"}),
        ("MultiInputRimsPolicy", spaces.Dict({"a": box(2), "b": spaces.Discrete(3)}), spaces.MultiBinary(2), {}),
    ],
)
def test_what_is_written_comes_back(policy, observation_space, action_space, kwargs, tmp_path):
    model = make(policy, observation_space, action_space, **kwargs)
    save(model, tmp_path)
    loaded, description = load_policy(tmp_path)
    assert description.env == "Anything" and str(loaded) == str(model.policy)
    observation = model.env.reset()
    (action, state), (expected, expected_state) = (p.predict(observation, deterministic=True) for p in (loaded, model))
    np.testing.assert_array_equal(action, expected)
    np.testing.assert_array_equal(state, expected_state)
    assert {path.name for path in tmp_path.iterdir()} == {"policy.safetensors", "policy.json"}


def test_rounded_weights_take_half_the_bytes_and_are_read_as_the_same_numbers(tmp_path):
    model = make()
    save(model, tmp_path)
    whole = (tmp_path / "policy.safetensors").stat().st_size
    before = {name: weight.clone() for name, weight in model.policy.state_dict().items()}
    round_weights(model.policy)
    save(model, tmp_path)
    sizes = [weight.dtype.itemsize for weight in load_file(tmp_path / "policy.safetensors").values()]
    assert set(sizes) == {2} and (tmp_path / "policy.safetensors").stat().st_size < 0.7 * whole
    loaded = load_policy(tmp_path)[0].state_dict()
    for name, weight in model.policy.state_dict().items():
        assert loaded[name].dtype == weight.dtype == torch.float32 and loaded[name].equal(weight)
        torch.testing.assert_close(weight, before[name], rtol=2**-11, atol=2**-24)
    assert any(not weight.equal(before[name]) for name, weight in loaded.items())


def test_weights_that_16_bits_cannot_hold_are_not_rounded_to_infinity(tmp_path):
    model = make()
    with torch.no_grad():
        model.policy.action_net.bias[0] = 1e5
    save(model, tmp_path)
    assert load_policy(tmp_path)[0].action_net.bias[0] == 1e5
    round_weights(model.policy)
    with pytest.raises(Diverged, match=r"'action_net.bias' .* not finite"):
        save(model, tmp_path)


@pytest.mark.parametrize(
    "space",
    [
        box(3),
        image(84, 84, 4),
        spaces.Box(np.array([-1, -np.inf], np.float32), np.array([np.inf, 2], np.float32)),
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([2, 5]),
        spaces.MultiBinary(3),
        spaces.Dict({"x": box(2), "y": spaces.Dict({"z": spaces.Discrete(2)})}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*Box.*precision")
def test_spaces_survive_json(space):
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def as_in_version_0_1(folder):
    """Weights without metadata, and the description beside them."""
    save_file(load_file(folder / "policy.safetensors"), folder / "policy.safetensors")


def damage(kind, folder):
    weights, description = folder / "policy.safetensors", folder / "policy.json"
    tensors = load_file(weights)
    name = "action_net.weight"
    if kind == "pickle":
        weights.write_bytes(pickle.dumps(Touch(folder / "touched")))
    elif kind == "torch pickle":
        torch.save({"x": Touch(folder / "touched")}, weights)
    elif kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "huge declared shape":
        header = json.dumps({name: {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
        weights.write_bytes(struct.pack("<Q", len(header)) + header)
    elif kind == "huge network":
        kwargs = {**json.loads(description.read_text())["policy_kwargs"], "rim_size": 10**6}
        change(description, policy_kwargs=kwargs)
    elif kind == "endless layers":
        change(description, policy_kwargs={**SMALL, "num_layers": 10**9})
    elif kind == "endless brackets":
        description.write_text("[" * 10**6)
    elif kind == "wrong dtype":
        save_file({**tensors, name: tensors[name].double()}, weights)
    elif kind == "wrong shape":
        save_file({**tensors, name: tensors[name][:1].clone()}, weights)
    elif kind == "not finite":
        save_file({**tensors, name: tensors[name] * float("nan")}, weights)
    elif kind == "missing weight":
        save_file({key: value for key, value in tensors.items() if key != name}, weights)
    elif kind == "other sizes":
        change(description, policy_kwargs={**SMALL, "core": "rims-robust", "rim_size": 5})
    elif kind == "no weights":
        weights.unlink()
    elif kind == "no description":
        description.unlink()
    elif kind == "not JSON":
        description.write_bytes(b"\x80\x04K")
    elif kind == "another format":
        change(description, format=99)
    elif kind == "unknown policy":
        change(description, policy="os.system")
    elif kind == "unknown core":
        change(description, policy_kwargs={**SMALL, "core": "no_such_core"})
    elif kind == "core by path":
        change(description, policy_kwargs={**SMALL, "core": "os.system"})
    elif kind == "huge observation":
        change(
            description,
            observation_space={"type": "Box", "low": 0, "high": 1, "shape": [10**6, 10**6], "dtype": "uint8"},
        )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pickle", "damaged or not a safetensors file"),
        ("torch pickle", "damaged or not a safetensors file"),
        ("truncated", "damaged"),
        ("huge declared shape", "damaged"),
        ("huge network", "1000000 is more than the .* numbers that policy.safetensors holds"),
        ("endless layers", "more layers than the .* weights of policy.safetensors"),
        ("endless brackets", "cannot be read"),
        ("wrong dtype", "'action_net.weight' must be float32 or float16, got torch.float64"),
        ("wrong shape", r"'action_net.weight' must have shape \(3, .*got \(1,"),
        ("not finite", "'action_net.weight' holds values that are not finite"),
        ("missing weight", "'action_net.weight' is in only one"),
        ("other sizes", "must have shape"),
        ("no weights", "has no policy.safetensors"),
        ("no description", "has no policy.json"),
        ("not JSON", "cannot be read"),
        ("another format", "format 1"),
        ("unknown policy", "does not describe a policy.*os.system"),
        ("unknown core", "does not describe a policy.*no_such_core"),
        ("core by path", "would import the core os.system, and was not trained by you"),
        ("huge observation", "too large"),
    ],
)
def test_damaged_and_hostile_files_are_refused_and_nothing_is_run(kind, words, tmp_path):
    save(make(), tmp_path)
    as_in_version_0_1(tmp_path)
    damage(kind, tmp_path)
    with pytest.raises(UserError, match=words):
        load_policy(tmp_path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pickle", "damaged or not a safetensors file"),
        ("truncated", "damaged"),
        ("huge declared shape", "damaged"),
        ("wrong dtype", "'action_net.weight' must be float32"),
        ("not finite", "'action_net.weight' holds values that are not finite"),
        ("no description", "has weights but no description"),
        ("not JSON", "cannot be read"),
        ("core by path", "would import the core os.system, and was not trained by you"),
        ("zip", "damaged or not a safetensors file"),
        ("missing", "there is no file"),
    ],
)
def test_a_shared_file_that_is_damaged_or_hostile_is_refused_and_nothing_is_run(kind, words, tmp_path):
    model, file = make(), tmp_path / "shared.safetensors"
    save(model, tmp_path)
    description, weights = read_description(tmp_path), load_file(tmp_path / "policy.safetensors")
    save_shared(model.policy, file, description)
    assert load_policy(file)[1] == description
    if kind == "zip":  # renamed
        model.save(tmp_path / "model.zip")
        (tmp_path / "model.zip").rename(file)
    elif kind == "missing":
        file.unlink()
    elif kind == "no description":
        save_file(weights, file)
    elif kind == "not JSON":
        save_file(weights, file, {"rims_rl": "{"})
    elif kind == "core by path":
        save_file(
            weights,
            file,
            {"rims_rl": json.dumps({**description.to_json(), "policy_kwargs": {**SMALL, "core": "os.system"}})},
        )
    else:
        damage(kind, tmp_path)
        file.write_bytes((tmp_path / "policy.safetensors").read_bytes())
        if kind in ("wrong dtype", "not finite"):
            save_file(load_file(file), file, {"rims_rl": json.dumps(description.to_json())})
    with pytest.raises(UserError, match=words):
        load_policy(file)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("content", ["pickle", "model"])
def test_a_zip_is_not_even_opened_without_trust(content, tmp_path):
    file = tmp_path / "model.zip"
    if content == "pickle":
        file.write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    else:
        model = make()
        model.policy_kwargs["touch"] = Touch(tmp_path / "touched")
        model.save(file)
    with user_error(r"is a pickle, and loading one can run any code.*--trust"):
        load_policy(file)
    assert not (tmp_path / "touched").exists()


def test_a_trusted_zip_that_is_no_model_is_one_sentence(tmp_path):
    (tmp_path / "model.zip").write_bytes(b"PK no zip")
    with pytest.raises(UserError, match="cannot be loaded as a model of Stable-Baselines3"):
        load_policy(tmp_path / "model.zip", trust=True)


def test_a_policy_of_another_class_is_refused(tmp_path):
    env = DummyVecEnv([lambda: Anything(box(5), spaces.Discrete(3))])
    model = RecurrentPPO("MlpLstmPolicy", env, n_steps=8, batch_size=8)
    with pytest.raises(UserError, match="RecurrentActorCriticPolicy cannot be written without pickle"):
        save(model, tmp_path)
