"""Every kind of file that we read, damaged in many ways: each command does its work or says one sentence.

Never a traceback, never a line of somebody else's code, never for ever, and no file that was there is gone.
"""

import contextlib
import json
import os
import pickle
import random
import shutil
import time
from functools import partial

import numpy as np
import onnx
import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rims_rl import runtime
from rims_rl.common.errors import UserError
from rims_rl.exporting.export import ExportOptions, export
from rims_rl.runs.folder import Arguments
from tests.helpers.attacking import Touch, command
from tests.helpers.verbs import train_run

pytestmark = pytest.mark.slow

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=16", "batch_size=32", "n_epochs=1"]
VALUES = (
    None,
    True,
    -1,
    0,
    3,
    10**9,
    10**30,
    1.5,
    1e308,
    float("nan"),
    "",
    "os.system",
    "../../x",
    [],
    {},
    [1],
    [[]],
    {"a": 1},
)
COMMANDS = {
    "policy": lambda run: [["evaluate", run, "--episodes", "1"]],
    "resume": lambda run: [["train", "--resume", run, "-n", "96"]],
    "report": lambda run: [["report", run]],
    # few steps of a comparison that takes long and has tests of its own
    "card": lambda run: [
        partial(export, ExportOptions(run=run, format="safetensors", card=True, check_steps=4)),
        ["report", run],
    ],
}
# what is read of a run, and who reads it
FILES = {
    "policy.json": "policy",
    "policy.safetensors": "policy",
    "CartPole-v1/args.yml": "resume",
    "CartPole-v1/config.yml": "resume",
    "run.json": "report",
    "evaluation.json": "card",
    "0.monitor.csv": "report",
    "evaluations.npz": "report",
    "checkpoints/64.pt": "resume",
    "best/policy.json": "resume",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attack")
    arguments = Arguments(env="CartPole-v1", eval_freq=32, eval_episodes=2, checkpoint_freq=32)
    made = train_run(arguments, [*SMALL, "n_timesteps=64"], folder)
    code, said = command(["evaluate", str(made), "--episodes", "2"])
    assert code == 0, said
    for place in (made, made / "best"):  # a run of version 0.1: else policy.json is only a copy
        save_file(load_file(place / "policy.safetensors"), place / "policy.safetensors")
    return made


def places(data, path=()):
    """The path of everything inside plain data."""
    yield path
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data[:3]):
            yield from places(value, (*path, key))


def mutate(data, generator):
    """Plain data with one thing in it replaced, removed or added."""
    data = json.loads(json.dumps(data))
    path = generator.choice(list(places(data)))
    if not path:
        return generator.choice(VALUES)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    what = generator.random()
    if what < 0.2:
        del inner[path[-1]]
    elif what < 0.3 and isinstance(inner, dict):
        inner[generator.choice(["", "a", "core", "columns", "__class__"])] = generator.choice(VALUES)
    else:
        inner[path[-1]] = generator.choice(VALUES)
    return data


def mutate_bytes(contents, generator):
    contents, what = bytearray(contents), generator.random()
    if what < 0.25:
        return bytes(contents[: generator.randrange(len(contents))])
    if what < 0.5:
        start = generator.randrange(len(contents))
        contents[start : start + 20] = generator.randbytes(20)
    elif what < 0.75:
        for _ in range(3):
            contents[generator.randrange(len(contents))] ^= 1 << generator.randrange(8)
    else:
        return generator.choice([b"", b"\0" * 100, b"\xff\xfe{}", b"[" * 5000, generator.randbytes(300)])
    return bytes(contents)


def damage(path, generator, touched):
    """Replace the file by something that is not quite it."""
    contents = path.read_bytes()
    if generator.random() < 0.1:
        path.write_bytes(pickle.dumps(Touch(touched)))
    elif path.suffix == ".json" and generator.random() < 0.8:
        path.write_text(json.dumps(mutate(json.loads(contents), generator)))
    elif path.suffix == ".yml" and generator.random() < 0.8:
        path.write_text(yaml.safe_dump(mutate(yaml.safe_load(contents), generator)))
    elif path.suffix == ".pt" and generator.random() < 0.7:
        state = torch.load(path, weights_only=True)
        key = generator.choice(list(state))
        if generator.random() < 0.3:
            del state[key]
        else:
            state[key] = generator.choice([*VALUES, torch.zeros(2), {"a": torch.zeros(1)}, Touch(touched)])
        torch.save(state, path)
    elif path.suffix == ".npz" and generator.random() < 0.5:
        with np.load(path) as arrays:
            arrays = dict(arrays)
        key = generator.choice(list(arrays))
        arrays[key] = generator.choice(
            [np.array([Touch(touched)]), np.zeros(0), np.array(["x"]), np.full((1, 2), np.nan)]
        )
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors" and generator.random() < 0.5:
        weights = load_file(path)
        name = generator.choice(list(weights))
        weights[name] = generator.choice(
            [torch.zeros(0), torch.zeros(3, 3), weights[name].double(), weights[name] * torch.nan, weights[name].long()]
        )
        save_file(weights, path)
    else:
        path.write_bytes(mutate_bytes(contents, generator))


@pytest.mark.parametrize("name", FILES)
def test_a_run_with_a_damaged_file_is_one_sentence_or_nothing_at_all(name, run, tmp_path):
    generator, begun = random.Random(name), time.time()
    before = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    for attempt in range(30):
        copy = shutil.copytree(run, tmp_path / f"{attempt}")
        damage(copy / name, generator, tmp_path / "touched")
        damaged = (copy / name).read_bytes()
        for words in COMMANDS[FILES[name]](str(copy)):
            code, said = command(words)
            assert code in (0, 2) and "Traceback" not in said, f"{words}\n{damaged[:2000]}\n{said}"
            if code == 2:
                assert len([line for line in said.splitlines() if line.startswith("rims-rl: ")]) >= 1, said
        assert not (tmp_path / "touched").exists(), damaged[:2000]
        after = {path.relative_to(copy) for path in copy.rglob("*")}
        gone = {str(path) for path in before - after}
        assert gone <= {"checkpoints/32.pt", "checkpoints/64.pt"}, gone
        if "checkpoints/64.pt" in gone and name.endswith(".pt") and code == 2:
            raise AssertionError("a checkpoint is gone although nothing was trained")
        shutil.rmtree(copy)
        if time.time() - begun > 30:  # a slow machine has done enough
            assert attempt > 3
            break


def test_a_kilobyte_of_description_takes_neither_gigabytes_nor_for_ever(run, tmp_path):
    """Each of these once did."""
    about = json.loads((run / "policy.json").read_text())
    box = about["observation_space"]
    kwargs = about["policy_kwargs"]
    hostile = [
        {"policy_kwargs": kwargs | {"columns": 10**9}},
        {"policy_kwargs": kwargs | {"num_rims": 10**30}},
        {"policy_kwargs": kwargs | {"net_arch": [10**7] * 20}},
        {"policy_kwargs": kwargs | {"core": "ntm", "core_kwargs": {"memory_size": 10**9}}},
        {"policy": "CnnRimsPolicy", "observation_space": box | {"shape": [4, 8192, 8192], "dtype": "uint8"}},
        {"observation_space": {"type": "Dict", "spaces": {str(i): box | {"shape": [2**24]} for i in range(6)}}},
        {"observation_space": box | {"dtype": "V1000000000"}},
        {"observation_space": box | {"dtype": "U99999999"}},
        {"observation_space": {"type": "Discrete", "n": 10**18, "start": 0}},
        {"observation_space": {"type": "MultiBinary", "n": [10**9, 10**9]}},
        {"action_space": {"type": "Discrete", "n": 10**18, "start": 0}},
        {"action_space": {"type": "MultiDiscrete", "nvec": [10**9] * 9}},
        {"normalization": {"observations": {"": {"mean": 0, "var": 1, "count": 1}}, "clip": 1.0, "epsilon": 1.0}},
    ]
    copy = shutil.copytree(run, tmp_path / "copy")
    deep = '{"type": "Dict", "spaces": {"a": ' * 480 + "{}" + "}}" * 480
    for changes in [*hostile, {"observation_space": "deep"}]:
        (copy / "policy.json").write_text(json.dumps(about | changes).replace('"deep"', deep))
        begun, memory = time.time(), peak_memory()
        code, said = command(["evaluate", str(copy), "--episodes", "1"])
        assert code == 2 and "Traceback" not in said, f"{changes}\n{said}"
        assert time.time() - begun < 20 and peak_memory() - memory < 300 * 2**20, changes


def peak_memory():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def test_damaged_onnx_files_and_descriptions_are_one_sentence(run, tmp_path):
    good, bad, generator = tmp_path / "good.onnx", tmp_path / "bad.onnx", random.Random(0)
    code, said = command(partial(export, ExportOptions(run=run, out=good, check_steps=4)))
    assert code == 0, said
    contents = good.read_bytes()
    for attempt in range(150):
        if attempt % 2:
            bad.write_bytes(mutate_bytes(contents, generator))
        else:
            model = onnx.load_from_string(contents)
            (entry,) = model.metadata_props
            entry.value = json.dumps(mutate(json.loads(entry.value), generator))
            bad.write_bytes(model.SerializeToString())
        with contextlib.suppress(UserError):
            agent = runtime.load(bad)
            for deterministic in (True, False):
                agent.act(np.zeros(4, np.float32), True, deterministic)


@pytest.mark.parametrize("suite", ["novel_distractors", "transfer_small"])
def test_damaged_results_of_a_suite_are_one_sentence(suite, tmp_path):
    generator, original = random.Random(suite), f"docs/results/{suite}"
    if not os.path.isdir(original):
        pytest.skip("only a checkout has results")
    results = shutil.copytree(original, tmp_path / suite)
    paths = sorted(results.glob("*.json"))
    for _ in range(6):
        path = generator.choice(paths)
        contents = path.read_bytes()
        damage(path, generator, tmp_path / "touched")
        code, said = command(["suite", "report", suite, "--results", str(results)])
        assert code in (0, 2) and "Traceback" not in said, f"{path.read_bytes()[:2000]}\n{said}"
        path.write_bytes(contents)
    assert not (tmp_path / "touched").exists()


def test_damaged_suite_files_are_one_sentence(tmp_path):
    generator, path = random.Random(1), tmp_path / "suite.yml"
    original = yaml.safe_load("""
        title: Two memories
        envs: [CartPole-v1]
        algos: {ppo: {n_epochs: 3}}
        cores: {rims-5: {core: rims, num_active: 5}, lstm: {ppo: {learning_rate: lin_1e-4}}}
        seeds: [0, 1]
        steps: 1000
        evaluation: {episodes: 2}
        transfer: {sources: [Acrobot-v1], carry: "encoder=finetune,core=freeze"}
        report: transfer
    """)
    for _ in range(150):
        path.write_text(yaml.safe_dump(mutate(original, generator)))
        if generator.random() < 0.2:
            path.write_bytes(mutate_bytes(path.read_bytes(), generator))
        code, said = command(["suite", "status", str(path), "--results", str(tmp_path), "--logdir", str(tmp_path)])
        assert code in (0, 2) and "Traceback" not in said, f"{path.read_bytes()[:2000]}\n{said}"


def test_the_description_of_a_shared_file_is_checked_like_that_of_a_run(run, tmp_path):
    options = ExportOptions(run=run, format="safetensors", out=tmp_path / "good.safetensors", check_steps=4)
    code, said = command(partial(export, options))
    assert code == 0, said
    with safe_open(tmp_path / "good.safetensors", "pt") as file:
        about = json.loads(file.metadata()["rims_rl"])
    weights, generator = load_file(tmp_path / "good.safetensors"), random.Random(2)
    for _ in range(60):
        changed = mutate(about, generator)
        save_file(weights, tmp_path / "bad.safetensors", {"rims_rl": json.dumps(changed)})
        code, said = command(["evaluate", str(tmp_path / "bad.safetensors"), "--episodes", "1"])
        assert code in (0, 2) and "Traceback" not in said, f"{changed}\n{said}"
