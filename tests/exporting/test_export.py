"""Exported files play as the policy does, for every format, core and kind of observation and action."""

import json
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import onnx
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation
from safetensors.torch import load_file, save_file
from stable_baselines3.common.vec_env import VecNormalize

from rims_rl import runtime
from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.saved.normalization import statistics_of
from rims_rl.agents.saved.policy_files import describe_policy, load_policy, save_policy
from rims_rl.cli.export_commands import print_export
from rims_rl.common.errors import UserError
from rims_rl.envs.efference import EfferenceCopy
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.exporting.export import FORMATS, ExportOptions, export, load_compiled
from rims_rl.runs.folder import Arguments
from tests.helpers.agents import Anything, box, image
from tests.helpers.verbs import evaluate_run, train_run, user_error

SMALL = {"num_rims": 4, "num_active": 2, "rim_size": 5}
GRIDS = spaces.Dict({"grid": image(7, 7, 3), "direction": spaces.Discrete(4), "vector": box(2)})


def minigrid():
    """What MiniGrid gives, without the mission, which is text."""
    import minigrid  # noqa: F401  # registers

    return FilterObservation(gym.make("MiniGrid-MultiRoom-N2-S4-v0"), ["image", "direction"])


# Episodes of these end after about ten steps.
gym.register("ExportPixels-v0", lambda: Anything(image(52, 52, 3), spaces.Discrete(4)))
gym.register("ExportGrids-v0", lambda: Anything(GRIDS, box(2)))
gym.register("ExportChoices-v0", lambda: Anything(box(3), spaces.MultiDiscrete([2, 3])))
gym.register("ExportSwitches-v0", lambda: Anything(box(3), spaces.MultiBinary(3)))
gym.register("ExportMiniGrid-v0", minigrid)
gym.register("ExportEfference-v0", lambda: EfferenceCopy(gym.make("CartPole-v1")))

CASES = {
    "vector": ("CartPole-v1", "MlpRimsPolicy", {}),
    "efference copy": ("ExportEfference-v0", "MultiInputRimsPolicy", {"core_kwargs": {"input_heads": 2}}),
    "two layers, gru, own critic": (
        "Acrobot-v1",
        "MlpRimsPolicy",
        {"num_layers": 2, "critic": "separate", "core_kwargs": {"cell": "gru", "comm_top_k": 2}},
    ),
    "atari": ("Breakout", "CnnRimsPolicy", {}),
    "bf16": ("Breakout", "CnnRimsPolicy", {"precision": "bf16"}),
    "spatial": (
        "ExportPixels-v0",
        "CnnRimsPolicy",
        {"input": "spatial", "core_kwargs": {"position_competition": True}},
    ),
    "minigrid": ("ExportMiniGrid-v0", "MultiInputRimsPolicy", {}),
    "cells": ("PickupKnown", "MultiInputRimsPolicy", {"input": "cells"}),
    "cells, one vector": ("PickupKnown", "MultiInputRimsPolicy", {"input": "cells", "core": "gru"}),
    "dict of all kinds": (
        "ExportGrids-v0",
        "MultiInputRimsPolicy",
        {"share_features_extractor": False, "critic": "none"},
    ),
    "scoff": ("CartPole-v1", "MlpRimsPolicy", {"core": "scoff", "core_kwargs": {"start": "learned"}}),
    "brims": ("CartPole-v1", "MlpRimsPolicy", {"core": "brims", "critic": "separate"}),
    "brims on minigrid": ("ExportMiniGrid-v0", "MultiInputRimsPolicy", {"core": "brims", "num_layers": 3}),
    "workspace": ("CartPole-v1", "MlpRimsPolicy", {"core": "rims-workspace"}),
    "workspace in two layers, gru": (
        "Acrobot-v1",
        "MlpRimsPolicy",
        {"core": "rims-workspace", "num_layers": 2, "critic": "separate", "core_kwargs": {"cell": "gru"}},
    ),
    "lstm": ("Pendulum-v1", "MlpRimsPolicy", {"core": "lstm", "critic": "separate"}),
    "lstm on atari": ("Breakout", "CnnRimsPolicy", {"core": "lstm"}),
    "gru": ("ExportChoices-v0", "MlpRimsPolicy", {"core": "gru", "num_layers": 2}),
    "rmc": ("CartPole-v1", "MlpRimsPolicy", {"core": "rmc", "core_kwargs": {"heads": 1}}),
    "ntm": ("CartPole-v1", "MlpRimsPolicy", {"core": "ntm", "num_layers": 2}),
    "dnc": ("CartPole-v1", "MlpRimsPolicy", {"core": "dnc", "critic": "separate"}),
    "entnet": ("CartPole-v1", "MlpRimsPolicy", {"core": "entnet"}),
    "gru on minigrid": ("ExportMiniGrid-v0", "MultiInputRimsPolicy", {"core": "gru"}),
    "none": ("ExportSwitches-v0", "MlpRimsPolicy", {"core": "none", "critic": "none"}),
}  # fmt: skip
ROOT = Path(__file__).parents[2]
QUICK = ("dict of all kinds",)  # the others take a second or more of tracing each


def make_run(folder, env, policy="MlpRimsPolicy", algorithm=RecurrentPPO, normalize=False, **kwargs):
    """The folder of a run, whose policy has random weights: attention differs, and so do actions."""
    envs = make_envs(resolve(env), 2, 0, 1)
    if normalize:
        envs = VecNormalize(envs)
        envs.reset()
        for _ in range(20):
            envs.step(np.array([envs.action_space.sample() for _ in range(2)]))
    torch.manual_seed(0)
    model = algorithm(policy, envs, n_steps=8, policy_kwargs={**SMALL, **kwargs})
    with torch.no_grad():
        model.policy.action_net.weight.mul_(100)
        for name, weight in model.policy.core.named_parameters():
            weight.mul_(5 if "query" in name else 1)
    statistics = statistics_of(envs) if normalize else None
    origin = {"env": env, "algo": "ppo", "steps": 16, "normalization": statistics}
    save_policy(model.policy, folder, describe_policy(model.policy, model.policy_kwargs, **origin))
    model.save(folder / f"{resolve(env).name}.zip")
    if normalize:
        envs.save(str(folder / "vecnormalize.pkl"))
    envs.close()
    return folder


def export_run(run, format, **options):
    """The file."""
    return export(ExportOptions(run=run, format=format, **options)).file


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A run, evaluated, with its ONNX file."""
    run = make_run(tmp_path_factory.mktemp("run"), "CartPole-v1", normalize=True, core="rims")
    evaluate_run(run, 3)
    export_run(run, "onnx", card=True, check_steps=50)
    return run


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_onnx_plays_as_the_policy_does(case, tmp_path, capsys):
    env, policy, kwargs = CASES[case]
    algorithm = RecurrentA2C if case in ("vector", "spatial", "lstm") else RecurrentPPO
    run = make_run(tmp_path, env, policy, algorithm, **kwargs)
    print_export(made := export(ExportOptions(run=run, format="onnx", check_steps=100)))
    file = made.file
    assert file == run / f"{resolve(env).name}.onnx" and "same actions, largest difference" in capsys.readouterr().out
    onnx.checker.check_model(str(file), full_check=True)
    assert str(ROOT).encode() not in file.read_bytes(), "nothing of this machine is told"
    agent = runtime.load(file)
    assert agent.description["env"] == env and agent.description["commit"] and agent.description["torch"]
    if kwargs.get("core") != "none":
        assert_the_state_matters(agent)


def assert_the_state_matters(agent):
    """The authors' released agent would fail here."""
    envs, outputs = make_envs(resolve(agent.description["env"]), 2, 0, 1), []
    for seed in range(2):
        shape = (2, agent.description["layers"], 2, agent.description["hidden_size"])
        agent.state = tuple(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
        outputs.append(agent.step(envs.reset(), [False, False]))
    envs.close()
    for name in {"logits", "action_mean", "value"} & outputs[0].keys():
        if name != "value" or agent.description["policy_kwargs"].get("critic") != "none":
            assert (outputs[0][name] != outputs[1][name]).all(), name


def test_onnx_has_observations_normalized_inside_and_says_what_it_is(cartpole):
    agent = runtime.load(cartpole / "CartPole-v1.onnx")
    policy, description = load_policy(cartpole)
    raw = np.array([0.5, -1, 0.1, 2], np.float32)
    statistics = description.normalization.observations[""]
    mean, var = np.array(statistics.mean), np.array(statistics.var)
    normalized = np.clip((raw - mean) / np.sqrt(var + 1e-8), -10, 10).astype(np.float32)
    starts = torch.ones(1)
    value = policy.predict_values(torch.as_tensor(normalized[None]), (torch.zeros(1, 1, 20),) * 2, starts)
    assert agent.step(raw, True)["value"] == pytest.approx(value.item(), abs=1e-6)
    assert agent.description["score"]["episodes"] == 3 and agent.description["steps"] == 16
    assert agent.description["observation_space"]["shape"] == [4] and agent.description["action_space"]["n"] == 2


def test_ties_go_to_the_lowest_index_in_onnx(cartpole):
    # From a zero state all RIMs attend alike; one that stays out keeps h = 0 and ties with the others that do.
    agent = runtime.load(cartpole / "CartPole-v1.onnx")
    outputs = agent.step(np.zeros((3, 4), np.float32), [True] * 3)
    assert outputs["active"].tolist() == [[True, True, False, False]] * 3
    assert not agent.state[0][0, :, 10:].any() and agent.state[0][0, :, :10].all()


def test_the_description_names_the_actions(tmp_path):
    run = make_run(tmp_path, "Breakout", "CnnRimsPolicy", core="none")
    _, description = load_policy(export_run(run, "safetensors", check_steps=4))
    assert description.action_meanings == ["NOOP", "FIRE", "RIGHT", "LEFT"]


def test_safetensors_is_one_file_that_evaluate_takes(cartpole, tmp_path):
    file = export_run(cartpole, "safetensors", out=tmp_path / "shared.safetensors", check_steps=20)
    assert [path.name for path in tmp_path.iterdir()] == ["shared.safetensors"]
    for source in (cartpole, file):
        evaluate_run(source, 3, out=tmp_path / f"{source.name}.json")
    results = [json.loads((tmp_path / f"{source.name}.json").read_text()) for source in (cartpole, file)]
    assert results[0]["scores"] == results[1]["scores"]
    evaluate_run(file, 1)
    assert (tmp_path / "shared.evaluation.json").exists()


def test_a_zip_needs_trust_and_then_plays_the_same(cartpole, tmp_path):
    file = cartpole / "CartPole-v1.zip"
    with user_error(r"is a pickle, and loading one can run any code.*--trust"):
        evaluate_run(file, 3, out=tmp_path / "zip.json")
    (alone := tmp_path / "CartPole-v1").mkdir()
    for name in ("CartPole-v1.zip", "vecnormalize.pkl"):  # without policy.json, as other tools leave it
        (alone / name).write_bytes((cartpole / name).read_bytes())
    for name, source in (("run", cartpole), ("zip", file), ("alone", alone / "CartPole-v1.zip")):
        evaluate_run(source, 3, out=tmp_path / f"{name}.json", trust=True)
    scores = [json.loads((tmp_path / f"{name}.json").read_text())["scores"] for name in ("run", "zip", "alone")]
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.slow
def test_pt2_plays_as_the_policy_does_and_needs_trust(tmp_path, capsys):
    run = make_run(tmp_path, "CartPole-v1", normalize=True)
    print_export(made := export(ExportOptions(run=run, format="pt2", check_steps=50)))
    file = made.file
    assert "same actions" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"holds native code.*trust=True"):
        load_compiled(file)
    with pytest.raises(UserError, match="made to be run elsewhere"):
        evaluate_run(file, 1)
    state = torch.zeros(1, 3, 20)
    outputs = load_compiled(file, trust=True)(torch.zeros(3, 4), state, state, torch.ones(3, dtype=torch.bool))
    assert outputs["active"].tolist() == [[True, True, False, False]] * 3


def test_pt2_without_a_compiler_is_one_sentence(cartpole, tmp_path, monkeypatch):
    (tmp_path / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        export_run(cartpole, "pt2", check_steps=10)


@pytest.mark.parametrize(
    ("output", "damage"),
    [
        ("action", lambda x: 1 - x),
        ("value", lambda x: np.nan * x),
        ("next_h", lambda x: x + 2e-5),
        ("active", lambda x: ~x),
    ],
)
def test_a_file_that_does_not_match_is_not_written(output, damage, cartpole, tmp_path, monkeypatch):
    damage_a_step(monkeypatch, output, damage)
    with pytest.raises(UserError, match=rf"does not do what the policy does: '{output}' differs by .* was not written"):
        export_run(cartpole, "safetensors", out=tmp_path / "x.safetensors", check_steps=40)
    assert not list(tmp_path.iterdir())


def damage_a_step(monkeypatch, output, damage):
    read = FORMATS["safetensors"].read

    def read_badly(path, space):
        play, steps = read(path, space), iter(range(1000))

        def play_badly(*inputs):
            outputs = play(*inputs)
            return outputs | {output: damage(outputs[output])} if next(steps) == 15 else outputs

        return play_badly

    bad = FORMATS["safetensors"]._replace(read=read_badly)
    monkeypatch.setattr("rims_rl.exporting.export.FORMATS", {**FORMATS, "safetensors": bad})


def test_where_rounding_decides_who_is_active_a_file_may_decide_otherwise(cartpole, tmp_path, monkeypatch, capsys):
    for name in ("policy.safetensors", "policy.json"):
        (tmp_path / name).write_bytes((cartpole / name).read_bytes())
    weights = load_file(tmp_path / "policy.safetensors")
    (name,) = (name for name in weights if name.endswith("input_query"))
    save_file(weights | {name: 1e-7 * weights[name]}, tmp_path / "policy.safetensors")
    damage_a_step(monkeypatch, "active", lambda x: ~x)
    print_export(made := export(ExportOptions(run=tmp_path, format="safetensors", check_steps=40)))
    assert made.ties == 5  # once in four environments, once in one
    assert "left out: 5 steps at which rounding decided which of two RIMs was active" in capsys.readouterr().out


def test_that_a_policy_diverged_is_told(cartpole, tmp_path, monkeypatch):
    for name in ("policy.safetensors", "policy.json"):
        (tmp_path / name).write_bytes((cartpole / name).read_bytes())
    weights = load_file(tmp_path / "policy.safetensors")
    (name,) = (name for name in weights if name.endswith("comm_out"))
    save_file(weights | {name: 100 * weights[name]}, tmp_path / "policy.safetensors")
    monkeypatch.setattr("rims_rl.exporting.export.TOLERANCE", -1)  # nothing is good enough
    with pytest.raises(UserError, match=r"\(its memory grew to \d+e\+\d+: it diverged in training\): '.*' differs by"):
        export_run(tmp_path, "safetensors", check_steps=40)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_trained_agents_are_exported(algo, tmp_path):
    """Their weights are larger than random ones, and with them rounding errors."""
    run = train_run(Arguments(env="CartPole-v1", algo=algo), ["n_timesteps=6000"], tmp_path)
    assert export_run(run, "onnx").exists()


def test_the_model_card_is_what_the_hub_expects(cartpole):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    card = huggingface_hub.ModelCard.load(cartpole / "README.md")
    (result,) = card.data.eval_results
    assert (result.task_type, result.metric_type, result.dataset_name) == (
        "reinforcement-learning",
        "mean_reward",
        "CartPole-v1",
    )
    scores = json.loads((cartpole / "evaluation.json").read_text())
    assert result.metric_value == f"{scores['mean']:.2f} +/- {scores['std']:.2f}"
    assert "95 % interval" in card.text and 'load("CartPole-v1.onnx")' in card.text and "16 steps" in card.text


def test_the_score_of_an_earlier_policy_is_not_told(cartpole, tmp_path):
    for name in ("policy.safetensors", "policy.json", "evaluation.json"):
        (tmp_path / name).write_bytes((cartpole / name).read_bytes())
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    (tmp_path / "evaluation.json").write_text(json.dumps({**evaluation, "steps": 32}))
    _, description = load_policy(export_run(tmp_path, "safetensors", card=True, check_steps=4))
    assert description.score is None and "Not evaluated" in (tmp_path / "README.md").read_text()


def test_somebody_elses_readme_is_not_overwritten(cartpole, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UserError, match=r"README.md is not a model card of rims-rl"):
        export_run(cartpole, "safetensors", out=tmp_path / "x.safetensors", card=True)
    assert (tmp_path / "README.md").read_text() == "mine" and not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"format": "pickle"}, r"--format must be one of onnx, safetensors, pt2, got 'pickle'"),
        ({"format": "onnx", "out": Path("x.zip")}, r"--out must end with .onnx, got x.zip"),
        ({"format": "safetensors", "out": Path("/proc/no/x.safetensors")}, "cannot be written"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, cartpole):
    with user_error(words):
        export(ExportOptions(run=cartpole, check_steps=2, **arguments))
