"""An exported policy without torch: states, batches, samples, and clear words about what is wrong."""

import json
import os
import pickle
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from rims_rl import runtime
from rims_rl.agents import RecurrentPPO
from rims_rl.agents.saved.policy_files import describe_policy
from rims_rl.common.errors import UserError
from rims_rl.exporting.export import FORMATS, ExportOptions, export
from rims_rl.exporting.policy_step import PolicyStep
from tests.helpers.agents import Anything, box
from tests.helpers.attacking import Touch
from tests.helpers.untrained_runs import save_untrained

ROOT = Path(__file__).parents[1]
SPACE = spaces.Dict({"a": box(3), "d": spaces.Discrete(4)})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    env = DummyVecEnv([lambda: Anything(SPACE, spaces.Discrete(3, start=2))])
    kwargs = {"core": "gru", "num_rims": 3, "rim_size": 4}  # quicker to trace than RIMs
    torch.manual_seed(0)
    policy = RecurrentPPO("MultiInputRimsPolicy", env, n_steps=8, batch_size=8, policy_kwargs=kwargs).policy
    with torch.no_grad():
        policy.action_net.weight.mul_(100)
    path = tmp_path_factory.mktemp("runtime") / "policy.onnx"
    description = describe_policy(policy, kwargs, env="Anything")
    FORMATS["onnx"].write(PolicyStep(policy, SPACE), description, SPACE, path)
    return path


def observations(batch, seed=0):
    generator = np.random.default_rng(seed)
    return {"a": generator.uniform(-1, 1, (batch, 3)).astype(np.float32), "d": generator.integers(0, 4, batch)}


def test_each_environment_has_a_state_of_its_own_that_ends_with_its_episode(file):
    together, alone = runtime.load(file), runtime.load(file)
    obs = [observations(3, seed) for seed in range(4)]
    starts = [[True] * 3, [False] * 3, [False, True, False], [False] * 3]
    values = [together.step(o, s)["value"] for o, s in zip(obs, starts, strict=True)]
    for i in range(3):
        alone.reset()
        for o, s, value in zip(obs, starts, values, strict=True):
            single = {key: part[i] for key, part in o.items()}  # one observation, as env.step gives it
            outputs = alone.step(single, s[i])
            assert outputs["value"] == pytest.approx(value[i], abs=1e-6) and outputs["logits"].shape == (3,)
    fresh = runtime.load(file)
    after_start = fresh.step(obs[2], [True] * 3)["value"]
    assert after_start[1] == pytest.approx(values[2][1], abs=1e-6) and abs(after_start[0] - values[2][0]) > 1e-4


def test_the_most_likely_action_is_taken_unless_samples_are_wanted(file):
    agent, obs = runtime.load(file, seed=1), observations(4000)
    outputs = agent.step(obs, [True] * 4000)
    np.testing.assert_array_equal(outputs["action"], outputs["logits"].argmax(-1) + 2)
    agent.reset()
    samples = agent.act(obs, [True] * 4000, deterministic=False)
    counts, chances = np.bincount(samples - 2, minlength=3) / 4000, np.exp(outputs["logits"]).mean(0)
    np.testing.assert_allclose(counts, chances, atol=0.03)
    again = runtime.load(file, seed=1).act(obs, [True] * 4000, deterministic=False)
    np.testing.assert_array_equal(samples, again)


def test_samples_of_every_kind_of_action_follow_their_distribution(file):
    agent, n = runtime.load(file, seed=0), 20000
    agent.description = {"action_space": {"type": "Box", "low": [-1.0, "-inf"], "high": [1.0, "inf"]}}
    result = {"action": np.zeros(1, np.float32), "action_mean": np.full((n, 2), 0.5)}
    result["action_log_std"] = np.full((n, 2), np.log(0.2))
    action = agent._sample(result)
    assert action.dtype == np.float32 and action[:, 0].max() == 1 and action[:, 1].max() > 1
    assert action[:, 1].mean() == pytest.approx(0.5, abs=0.01) and action[:, 1].std() == pytest.approx(0.2, abs=0.01)

    chances = np.array([0.2, 0.8, 0.1, 0.3, 0.6])
    agent.description = {"action_space": {"type": "MultiDiscrete", "nvec": [2, 3]}}
    action = agent._sample({"logits": np.log(np.tile(chances, (n, 1)))})
    got = [*(np.bincount(action[:, 0]) / n), *(np.bincount(action[:, 1]) / n)]
    np.testing.assert_allclose(got, chances, atol=0.02)

    agent.description = {"action_space": {"type": "MultiBinary", "n": 2}}
    logits = np.log(np.tile([0.2 / 0.8, 0.9 / 0.1], (n, 1)))
    action = agent._sample({"action": np.zeros(1, np.int8), "logits": logits})
    np.testing.assert_allclose(action.mean(0), [0.2, 0.9], atol=0.02)
    assert action.dtype == np.int8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda o: {"a": o["a"]}, r"must be a dictionary of \['a', 'd'\], got \['a'\]"),
        (lambda o: o["a"], r"must be a dictionary of \['a', 'd'\], got ndarray"),
        (lambda o: o | {"a": o["a"][:, :2]}, r"observation.a must have shape \(3,\).*got \(2, 2\)"),
        (lambda o: o | {"d": o["d"] + 0.5}, r"observation.d must be int64, got float64"),
        (lambda o: o | {"d": o["d"][:1]}, r"all keys must have the same batch"),
        (lambda o: observations(5), r"episode_start must have shape \(5,\)"),
    ],
)
def test_wrong_observations_are_named(change, words, file):
    with pytest.raises(ValueError, match=words):
        runtime.load(file).act(change(observations(2)), [True, True])


def test_another_number_of_environments_needs_a_reset(file):
    agent = runtime.load(file)
    agent.act(observations(2), [True, True])
    with pytest.raises(ValueError, match=r"has the states of 2 environments, got 3 observations; call reset\(\)"):
        agent.act(observations(3), [True] * 3)
    agent.reset()
    agent.act(observations(3), [True] * 3)


def hostile(kind, good, path):
    model = onnx.load(good)
    weight = model.graph.initializer[0]
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Touch(path.parent / "touched")))
        return
    if kind == "truncated":
        path.write_bytes(good.read_bytes()[:-2000])
        return
    if kind == "no description":
        del model.metadata_props[:]
    elif kind == "not JSON":
        model.metadata_props[0].value = "{"
    elif kind == "huge declared shape":
        weight.dims[:] = [10**6, 10**6]
    elif kind in ("../secret", "secret"):
        (path.parent / kind).write_bytes(bytes(10**4))
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=kind)
    elif kind == "unknown operation":
        model.graph.node[0].op_type = "System"
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pickle", "damaged or not an ONNX file"),
        ("truncated", "damaged or not an ONNX file"),
        ("no description", "has no description by rims-rl"),
        ("not JSON", "damaged or not an ONNX file"),
        ("huge declared shape", "damaged or not an ONNX file"),
        ("secret", "damaged or not an ONNX file"),  # weights from another file
        ("../secret", "damaged or not an ONNX file"),
        ("unknown operation", "damaged or not an ONNX file"),
    ],
)
def test_damaged_and_hostile_files_are_refused(kind, words, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile(kind, file, tmp_path / "bad.onnx")
    with pytest.raises(UserError, match=words):
        runtime.load(tmp_path / "bad.onnx")
    assert not (tmp_path / "touched").exists()


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"no\.onnx cannot be read: No such file"):
        runtime.load(tmp_path / "no.onnx")


@pytest.mark.slow
def test_the_example_plays_where_there_is_neither_torch_nor_rims_rl(tmp_path):
    untrained = save_untrained(tmp_path / "run", "CartPole-v1")
    played = export(ExportOptions(run=untrained, out=tmp_path / "policy.onnx", check_steps=20)).file
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"

    def run(*command):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = (python, "-m", "pip", "install", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt")
    run(*pip, "numpy", "onnxruntime", "gymnasium")
    installed = {package["name"] for package in json.loads(run(python, "-m", "pip", "list", "--format", "json"))}
    assert not installed & {"rims-rl", "torch", "stable_baselines3", "stable-baselines3", "sb3-contrib"}
    scores = [
        line.split(": ")[1]
        for line in run(python, ROOT / "examples/play_onnx.py", played, "CartPole-v1").split("\n")[:5]
    ]
    here = subprocess.run(
        [sys.executable, ROOT / "examples/play_onnx.py", played, "CartPole-v1"], capture_output=True, text=True
    )
    assert len(scores) == 5 and scores == [line.split(": ")[1] for line in here.stdout.split("\n")[:5]]
