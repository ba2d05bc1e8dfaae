"""The folder of a run: claimed once, written whole."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from rims_rl.agents.saved.policy_files import load_policy, save_shared
from rims_rl.cli.app import shown_messages
from rims_rl.cli.evaluation_tables import print_evaluation
from rims_rl.common.errors import UserError
from rims_rl.common.statistics import summary
from rims_rl.core import RIM, register_core
from rims_rl.runs.folder import Arguments, claim, read_arguments
from tests.helpers.verbs import evaluate_run, resume_run, train_run, user_error

SMALL = ["num_rims=3", "num_active=2", "rim_size=4"]


def run_training(tmp_path, env, *overrides, algo="ppo", seed=0, eval_freq=0):
    arguments = Arguments(env=env, algo=algo, seed=seed, device="cpu", eval_freq=eval_freq, eval_episodes=2)
    return train_run(arguments, [*SMALL, *overrides], tmp_path)


def test_numbers_go_up_and_two_that_claim_together_get_two_folders(tmp_path):
    assert [claim(tmp_path, "ppo", "Pong").name for _ in range(3)] == ["Pong_1", "Pong_2", "Pong_3"]
    assert claim(tmp_path, "ppo", "Pong-v5").name == "Pong-v5_1"
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: claim(tmp_path, "a2c", "Pong"), range(40)))
    assert len(set(folders)) == 40


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with user_error(r"--logdir .*file cannot be written"):
        claim(tmp_path / "file", "ppo", "Pong")


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_training_leaves_everything_in_its_folder(algo, tmp_path):
    sizes = ["n_envs=2", "n_steps=32"] + (["batch_size=32", "n_epochs=1"] if algo == "ppo" else [])
    run = run_training(tmp_path, "CartPole-v1", "n_timesteps=512", *sizes, algo=algo, eval_freq=128)
    assert run == tmp_path / algo / "CartPole-v1_1"
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "CartPole-v1", "CartPole-v1.zip", "command.txt", "run.json", "0.monitor.csv", "evaluations.npz", "best",
        "policy.safetensors", "policy.json", "tensorboard", "checkpoints",
    }  # fmt: skip
    assert not [name for name in names if name.startswith(".")], "no temporary files stay behind"
    config = yaml.safe_load((run / "CartPole-v1/config.yml").read_text())
    assert config["num_rims"] == 3 and config["n_steps"] == 32
    about = json.loads((run / "run.json").read_text())
    assert about["seed"] == 0 and about["steps"] >= 512 and about["finished"] and about["torch"]
    header, columns, *rows = (run / "0.monitor.csv").read_text().splitlines()
    assert header.startswith('#{"t_start"') and columns == "r,l,t" and len(rows) > 5
    evaluations = np.load(run / "evaluations.npz")
    assert evaluations["results"].shape == (len(evaluations["timesteps"]), 2)
    for folder in (run, run / "best"):
        assert load_policy(folder)[0].core.hidden_size == 12
    board = EventAccumulator(str(run / "tensorboard"), {"images": 0, "histograms": 0}).Reload()
    pictures = board.Images("rims/activity")
    assert [event.step for event in pictures] == evaluations["timesteps"].tolist()
    assert cv2.imdecode(np.frombuffer(pictures[0].encoded_image_string, np.uint8), cv2.IMREAD_COLOR).std() > 20
    if algo == "ppo":  # a2c writes numbers every 100 rollouts
        usage = board.Histograms("rims/usage")[-1].histogram_value
        assert usage.num == 2 * 32 * 2 and usage.bucket_limit == [0.5, 1.5, 2.5], (
            "two of three RIMs are active at each step of both environments"
        )
    settings = board.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    told = HParamsPluginData.FromString(settings).session_start_info.hparams
    assert told["num_rims"].number_value == 3 and told["env"].string_value == "CartPole-v1"


def test_a_run_is_repeated_from_its_folder(tmp_path):
    first = run_training(tmp_path, "CartPole-v1", "n_timesteps=256", "n_envs=2", "n_steps=32", "batch_size=32", seed=3)
    arguments, config = read_arguments(first)
    again = train_run(arguments, [], tmp_path, config)
    other = train_run(arguments.model_copy(update={"seed": 4}), [], tmp_path, config)
    weights = [(run / "policy.safetensors").read_bytes() for run in (first, again, other)]
    assert weights[0] == weights[1] != weights[2]


def test_atari_trains_and_is_evaluated_with_whole_games(tmp_path, capsys):
    run = run_training(tmp_path, "Breakout", "n_timesteps=256", "n_envs=2", "n_steps=32", "batch_size=32", "n_epochs=1")
    print_evaluation(evaluate_run(run, 3))
    result = json.loads((run / "evaluation.json").read_text())
    assert len(result["scores"]) == 3 and result["deterministic"] is False and min(result["lengths"]) > 50
    assert "Breakout: mean" in capsys.readouterr().out


def test_observations_are_normalized_in_evaluation_as_in_training(tmp_path):
    run = run_training(
        tmp_path, "CartPole-v1", "n_timesteps=256", "n_envs=2", "n_steps=32", "batch_size=32", "normalize=true"
    )
    _, description = load_policy(run)
    statistics = description.normalization.observations[""]
    assert len(statistics.mean) == 4 and statistics.var != [1.0] * 4
    evaluate_run(run, 4, out=tmp_path / "e.json")
    assert json.loads((tmp_path / "e.json").read_text())["deterministic"] is True


def test_the_summary_is_what_one_computes_by_hand():
    scores = np.array([1.0, 2.0, 3.0, 10.0])
    result = summary(scores)
    assert (result["mean"], result["median"]) == (4.0, 2.5)
    low, high = result["mean_95"]
    assert 1.0 <= low < 4.0 < high <= 10.0
    assert summary(np.full(5, 7.0))["mean_95"] == [7.0, 7.0]


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("nowhere", r"there is no file or folder .*nowhere; give the folder of a run"),
        (".", r"has no policy\.safetensors; is it the folder of a run"),
    ],
)
def test_evaluating_what_is_not_a_run_is_one_sentence(folder, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        evaluate_run(tmp_path / folder, 1)
    assert not list(Path(tmp_path).iterdir())


def test_training_that_diverges_says_so_and_keeps_the_last_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r"diverged: .* try a smaller learning_rate than 1e\+20"):
        run_training(tmp_path, "CartPole-v1", "learning_rate=1e20", "n_timesteps=4096")
    policy, description = load_policy(tmp_path / "ppo/CartPole-v1_1")
    assert description.steps == 0 and all(weight.isfinite().all() for weight in policy.parameters())


@pytest.mark.parametrize(("size", "notes"), [(2e4, 1), (1.0, 0)])
def test_a_memory_that_grows_beyond_all_measure_is_told_once(size, notes, tmp_path, capsys, monkeypatch):
    settle = RIM.forward

    def grow(self, *args, **kwargs):
        output, (h, c) = settle(self, *args, **kwargs)
        return output, (torch.full_like(h, size), c)

    monkeypatch.setattr(RIM, "forward", grow)
    quick = ("n_envs=2", "n_steps=32", "batch_size=32", "n_epochs=1", "n_timesteps=256")
    with shown_messages():
        run = run_training(tmp_path, "CartPole-v1", "learning_rate=1e-9", *quick)
    said = capsys.readouterr().out
    assert said.count("note: the memory diverges: its largest value is") == notes
    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    assert any(event.value > 1e4 for event in board.Scalars("rims/largest_state")) == bool(notes)


def rims_without_a_wish(input_size, hidden_size, num_rims, num_active, **options):
    """All RIMs attend alike, so that the first wins every competition."""
    rim = RIM(input_size, hidden_size, num_rims, num_active, **options)
    torch.nn.init.zeros_(rim.layers[0].input_query)
    return rim


@pytest.mark.parametrize(("algo", "rollout"), [("ppo", ["n_steps=32", "batch_size=32"]), ("a2c", ["n_steps=1"])])
def test_tensorboard_says_how_alive_the_rims_are_and_starved_ones_are_told_once(algo, rollout, tmp_path, capsys):
    register_core("wishless", rims_without_a_wish)
    steps = {"ppo": 64 * 22, "a2c": 2 * 100 * 22}[algo]
    options = ["n_envs=2", "learning_rate=1e-30", "core=wishless", "num_active=1", f"n_timesteps={steps}", *rollout]
    with shown_messages():
        run = run_training(tmp_path, "CartPole-v1", *options, algo=algo)
    said = capsys.readouterr().out
    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    last = {name: board.Scalars(f"rims/{name}")[-1].value for name in ("mean_active", "collapse", "worst_usage")}
    assert last == pytest.approx({"mean_active": 1, "collapse": 1, "worst_usage": 1})
    assert said.count("RIMs 1, 2 have starved: after") == 1 and "core_kwargs.balance=0.01 wakes them" in said


def test_training_starts_from_a_shared_policy(tmp_path):
    sizes = ["n_envs=2", "n_steps=64", "batch_size=64", "n_epochs=1", "n_timesteps=256", "normalize=true"]
    first = run_training(tmp_path, "CartPole-v1", *sizes)
    policy, description = load_policy(first)
    shared = tmp_path / "shared.safetensors"
    save_shared(policy, shared, description)

    def go_on(*overrides, env="CartPole-v1", file=shared):
        arguments = Arguments(env=env, device="cpu", seed=1, eval_freq=0, init_from=str(file))
        return train_run(arguments, [*SMALL, *sizes, *overrides], tmp_path)

    # with a learning rate of almost nothing, what comes out is what went in
    second, described = load_policy(go_on("learning_rate=1e-30"))
    for name, weight in policy.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], weight, rtol=0, atol=1e-6)
    assert described.init_from == "shared.safetensors" and description.init_from is None
    before, after = (each.normalization.observations[""].count for each in (description, described))
    assert after > before > 256, "statistics go on from those of the policy"

    for overrides, words in (
        (["rim_size=8"], "settings: core, with rim_size=4 there and 8 here; heads, where 'mlp_ex"),
        (["normalize=false"], "encoder, with normalize=True there and False here"),
        (
            ["policy_kwargs.net_arch=[16]"],
            "does not fit this environment and these settings: heads, where 'mlp_ex",
        ),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            go_on(*overrides)
    with pytest.raises(UserError, match=r"does not fit this environment .* is \(16, 4\) there, and \(16, 6\) here"):
        go_on("critic=separate", env="Acrobot-v1")
    with pytest.raises(UserError, match="is a pickle"):
        go_on(file=first / "CartPole-v1.zip")
    assert len(list((tmp_path / "ppo").iterdir())) == 2, "what does not fit leaves no folder behind"


def test_what_is_frozen_stays_frozen_in_a_run_that_is_resumed_and_columns_come_from_runs(tmp_path):
    sizes = ["n_envs=2", "n_steps=32", "batch_size=32", "n_epochs=1", "n_timesteps=64", "normalize=false"]
    sizes += ["critic=shared", "core=lstm"]
    first = run_training(tmp_path, "CartPole-v1", *sizes)
    kept = load_policy(first)[0].core.state_dict()

    def go_on(**how):
        arguments = Arguments(env="CartPole-v1", device="cpu", seed=1, eval_freq=0, **how)
        run = resume_run(train_run(arguments, [*SMALL, *sizes], tmp_path), 128)
        assert read_arguments(run)[0] == arguments
        return load_policy(run)

    policy, description = go_on(init_from=str(first), carry="core=freeze")
    assert all(torch.equal(weight, kept[name]) for name, weight in policy.core.state_dict().items())
    assert (description.steps, description.init_from, description.carry) == (128, first.name, "core=freeze")
    policy, description = go_on(columns=[str(first), str(first)])
    for column in policy.core.columns:
        assert all(torch.equal(weight, kept[name]) for name, weight in column.state_dict().items())
    assert description.columns == [first.name] * 2 and description.policy_kwargs.columns == 2
    evaluate_run(tmp_path / "ppo/CartPole-v1_3", 2)  # with the memories of all columns
    with user_error("--column needs normalize=false"):
        sizes[-3] = "normalize=true"
        go_on(columns=[str(first)])


def test_statistics_of_observations_are_frozen_with_the_encoder_and_make_a_run_unfit_as_a_column(tmp_path):
    sizes = ["n_envs=2", "n_steps=32", "batch_size=32", "n_epochs=1", "n_timesteps=64", "normalize=true"]
    first = run_training(tmp_path, "CartPole-v1", *sizes, "critic=shared", "core=lstm")
    arguments = Arguments(env="CartPole-v1", device="cpu", seed=1, eval_freq=0)
    carry = arguments.model_copy(update={"init_from": str(first), "carry": "encoder=freeze"})
    second = resume_run(train_run(carry, [*SMALL, *sizes], tmp_path), 128)
    kept, mine = (load_policy(run)[1].normalization for run in (first, second))
    assert mine == kept
    rewards = [torch.load(path)["normalization"]["rewards"]["count"] for path in second.glob("checkpoints/*.pt")]
    assert max(rewards) > 100, "those of the rewards go on"
    beside, plain = arguments.model_copy(update={"columns": [str(first)]}), [*sizes[:-1], "normalize=false"]
    with user_error(r"--column .* was trained with normalize=true, and columns need normalize=fal"):
        train_run(beside, [*SMALL, *plain, "critic=shared", "core=lstm"], tmp_path)
