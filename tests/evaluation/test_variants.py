"""One frozen policy in all variants of its environment, against a loop written by hand."""

import json
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from matplotlib.image import imread

from rims_rl import cli
from rims_rl.agents import RecurrentPPO
from rims_rl.agents.saved.policy_files import describe_policy, load_policy, read_description, save_policy, save_shared
from rims_rl.cli.evaluation_tables import print_variants
from rims_rl.common.errors import UserError
from rims_rl.common.statistics import rate_difference, wilson
from rims_rl.envs.make import make_envs
from rims_rl.envs.minigrid.observation import MinigridObservation
from rims_rl.envs.names import resolve
from rims_rl.envs.pickup.pickup import Pickup
from rims_rl.envs.registration import PICKUPS
from rims_rl.envs.variants import variants_of
from rims_rl.evaluation.compare import compare_runs
from rims_rl.evaluation.evaluate_variants import evaluate_variants
from rims_rl.evaluation.options import VariantsOptions
from rims_rl.evaluation.play_variants import play_variants
from tests.helpers.verbs import user_error

SIZES = {"num_rims": 3, "num_active": 2, "rim_size": 4}


def untrained(folder, env="PickupKnown", policy="MultiInputRimsPolicy", core="rims", seed=0, **options):
    """The files of a run that evaluation reads."""
    resolved, kwargs = resolve(env, **options), {"core": core, **SIZES}
    envs = make_envs(resolved, 1, 0)
    model = RecurrentPPO(policy, envs, n_steps=8, batch_size=8, seed=seed, policy_kwargs=kwargs)
    origin = {"env": env, "env_options": resolved.options, "algo": "ppo", "seed": seed, "steps": 0}
    save_policy(model.policy, folder, describe_policy(model.policy, kwargs, **origin))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("PickupKnown_1"))


def play(run, variants, episodes, seed=0, n_envs=4, report=None, **options):
    how = VariantsOptions(
        runs=[run], variants=variants, episodes=episodes, seed=seed, n_envs=n_envs, threads=1, **options
    )
    return play_variants(run, how, report)


def play_by_hand(run, variant, episodes, seed, n_envs):
    """(return, length, outcome) of the first episodes of each environment, as many in each as evenly as can be."""
    policy, _ = load_policy(run)
    torch.manual_seed(seed)
    envs = [MinigridObservation(gym.make(f"RimsRL/Pickup-{variant}-v0")) for _ in range(n_envs)]
    observations = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    wanted = [(episodes + i) // n_envs for i in range(n_envs)]
    played, current = [[] for _ in envs], [[] for _ in envs]
    state, starts = None, np.ones(n_envs, bool)
    while any(len(done) < count for done, count in zip(played, wanted, strict=True)):
        batch = {key: np.stack([one[key] for one in observations]) for key in observations[0]}
        actions, state = policy.predict(batch, state, starts)
        for i, env in enumerate(envs):
            observations[i], reward, terminated, truncated, info = env.step(actions[i])
            current[i].append(reward)
            starts[i] = terminated or truncated
            if starts[i]:
                played[i].append((sum(current[i]), len(current[i]), info["outcome"]))
                current[i] = []
                observations[i], _ = env.reset()
    return [episode for done, count in zip(played, wanted, strict=True) for episode in done[:count]]


def test_a_variant_comes_out_as_in_a_loop_written_by_hand(run):
    result = play(run, ["known", "more-novel-shape"], 30, seed=3, n_envs=4)
    rates = {}
    for name, variant in (("known", "Known"), ("more-novel-shape", "MoreNovelShape")):
        returns, lengths, outcomes = zip(*play_by_hand(run, variant, 30, 3, 4), strict=True)
        played = result["variants"][name]
        rates[name] = outcomes.count("success")
        assert played["episodes"] == len(returns) == 30
        assert played["success"] == rates[name] / 30 and played["success_95"] == wilson(rates[name], 30)
        assert played["wrong_pick"] == outcomes.count("wrong pick") / 30
        assert played["time_out"] == outcomes.count("time-out") / 30
        assert played["return"] == pytest.approx(np.mean(returns)) and played["length"] == np.mean(lengths)
    assert len(set(outcomes)) == 3, "all that can happen did happen"
    before, after = rates.values()
    assert played["drop"] == pytest.approx((before - after) / 30)
    assert played["drop_95"] == rate_difference(before, 30, after, 30)
    assert result["reference"] == "known" and result["variants"]["known"]["drop"] is None


def test_every_policy_meets_the_same_rooms_and_the_same_seed_gives_the_same_result(run, tmp_path, monkeypatch):
    rooms = []
    reset = Pickup.reset

    def recorded(self, **kwargs):
        observation = reset(self, **kwargs)
        rooms.append((id(self), self.mission, self.grid.encode().tobytes(), tuple(self.agent_pos), self.agent_dir))
        return observation

    def rooms_of(*arguments, **options):
        rooms.clear()
        result = play(*arguments, ["novel-colour"], 12, **options)
        envs = list(dict.fromkeys(env for env, *_ in rooms))
        return result, [[room for at, *room in rooms if at == env][:3] for env in envs]

    monkeypatch.setattr(Pickup, "reset", recorded)
    first, met = rooms_of(run)
    assert rooms_of(run) == (first, met)
    other, met_by_other = rooms_of(untrained(tmp_path, core="lstm", seed=1), deterministic=True)
    assert met_by_other == met and other["variants"] != first["variants"]
    assert rooms_of(run, seed=1)[1] != met


def test_the_result_holds_the_settings_that_each_environment_had(run):
    ended = []
    result = play(run, ["all"], 2, n_envs=8, report=lambda: ended.append(1))
    assert json.loads(json.dumps(result))["variants"].keys() == result["variants"].keys()
    assert len(ended) == 2 * len(PICKUPS) == 2 * len(result["variants"]) and result["n_envs"] == 2
    for (variant, given), played in zip(PICKUPS.items(), result["variants"].values(), strict=True):
        env = gym.make(f"RimsRL/Pickup-{variant}-v0").unwrapped
        assert played["env"]["id"] == f"RimsRL/Pickup-{variant}-v0" and played["env"]["observation"] == "symbolic"
        assert played["env"]["distractors"] == given.get("distractors", env.targets)
        assert played["env"]["num_distractors"] == given.get("num_distractors", 2)
        assert played["env"]["unlike"] == given.get("unlike")
        assert played["env"]["max_steps"] == 36 and played["env"]["room_size"] == 6 and played["env"]["view"] == 5
        assert played["env"]["strict"] is True and len(played["env"]["targets"]) == 8
    assert (result["core"], result["algo"], result["seed"], result["steps"]) == ("rims", "ppo", 0, 0)
    assert result["parameters"] == sum(weight.numel() for weight in load_policy(run)[0].parameters())


def test_one_run_is_told_as_table_json_and_picture(run, tmp_path, capsys):
    options = {"runs": [run], "variants": ["known", "more"], "episodes": 6, "n_envs": 3, "threads": 1}
    print_variants(evaluate_variants(VariantsOptions(**options, out=tmp_path / "one.json")))
    result = json.loads((tmp_path / "one.json").read_text())
    assert result["variants"] == json.loads(json.dumps(play(run, ["known", "more"], 6, n_envs=3)["variants"]))
    assert result["intervals"]["success_95"].startswith("Wilson") and "commit" in result
    rate, (low, high) = (result["variants"]["more"][key] for key in ("success", "success_95"))
    assert f"{rate:.2f} [{low:.2f}, {high:.2f}]" in capsys.readouterr().out
    assert imread(tmp_path / "one.png").std() > 0.05  # something is drawn


def test_several_runs_compare_cores(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [run, *(untrained(tmp_path / f"lstm_{seed}", core="lstm", seed=seed) for seed in range(2))]
    variants = ["known", "novel-colour", "novel-shape"]
    options = VariantsOptions(runs=runs, variants=variants, episodes=4, n_envs=4, threads=1)
    print_variants(evaluate_variants(options))
    result = json.loads((tmp_path / "PickupKnown_variants.json").read_text())
    assert result["comparison"] == json.loads(json.dumps(compare_runs(result["runs"])))
    assert {label: group["seeds"] for label, group in result["comparison"]["groups"].items()} == {
        "rims": [0],
        "lstm": [0, 1],
    }
    assert len(result["runs"]) == 3 and imread(tmp_path / "PickupKnown_variants.png").std() > 0.05
    shown = capsys.readouterr().out
    assert "lstm, 2 seeds" in shown and "rims over lstm" in shown and "novel (mean)" in shown


def test_codes_without_trained_weights_are_told(run, tmp_path):
    (note,) = play(run, ["known", "new-shape"], 1)["notes"]
    assert note.startswith("new-shape: in symbolic form") and "observation=rgb" in note
    pixels = play(untrained(tmp_path, observation="rgb"), ["new-shape"], 1)
    assert pixels["notes"] == [] and pixels["variants"]["new-shape"]["env"]["observation"] == "rgb"
    assert pixels["variants"]["new-shape"]["drop"] is None, "there is nothing to compare with"


def test_a_policy_for_recall_is_played_in_all_its_variants(tmp_path, capsys):
    runs = [untrained(tmp_path / core, "Recall", "MlpRimsPolicy", core) for core in ("rims", "gru")]
    options = {"variants": ["all"], "episodes": 6, "n_envs": 3, "threads": 1}
    result = evaluate_variants(VariantsOptions(runs=runs[:1], **options))
    print_variants(result)
    printed, played = capsys.readouterr().out, result.runs[0]["variants"]
    assert list(played) == list(variants_of(resolve("Recall"))) and result.runs[0]["reference"] == "known"
    for name, one in played.items():
        assert one["success"] == one["return"] and one["wrong_pick"] is one["time_out"] is None
        assert one["env"]["loudness"] == (3.0 if "loud" in name else 1.0)
    assert [played[f"long{delay}"]["length"] for delay in (50, 100, 400)] == [52, 102, 402]
    assert "wrong pick" not in printed and "drop from known" in printed and "return" in printed
    assert result.notes == ["novel and novel-loud: weights of the numbers that are their tokens were never trained"]

    compared = evaluate_variants(VariantsOptions(runs=runs, **options, out=tmp_path / "both.json"))
    for core, one in zip(("rims", "gru"), compared.runs, strict=True):
        success = {name: variant["success"] for name, variant in one["variants"].items()}
        cost = (success["control"] - success["novel"] + success["control-loud"] - success["novel-loud"]) / 2
        assert compared.comparison["groups"][core]["novelty_cost"]["iqm"] == pytest.approx(cost)


def test_what_cannot_be_played_is_one_sentence(run, tmp_path):
    with pytest.raises(UserError, match="no variant 'novel-color'; did you mean novel-colour or "):
        play(run, ["known", "novel-color"], 1)
    with pytest.raises(UserError, match=r"no variant 'x'; it has known, novel-colour, .*; or give all"):
        play(run, ["x"], 1)
    with user_error(r"--out must end in \.json.* got x\.png"):
        evaluate_variants(VariantsOptions(runs=[run], variants=["known"], episodes=1, threads=1, out=Path("x.png")))
    cartpole = untrained(tmp_path / "cartpole", "CartPole-v1", "MlpRimsPolicy")
    with pytest.raises(UserError, match="CartPole-v1 has no variants; pick-up tasks"):
        play(cartpole, ["known"], 1)
    pixels = untrained(tmp_path / "pixels", observation="rgb")
    policy, description = load_policy(pixels)
    description.env_options = read_description(run).env_options
    save_shared(policy, pixels / "policy.safetensors", description)
    with pytest.raises(UserError, match=r"of the form image \(3, 40, 40\), .* PickupKnown gives image \(5, 5, 3\)"):
        play(pixels, ["known"], 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "b"], "several runs are compared in variants, so give --variants, or leave out b"),
        (["a", "--variants", "all", "--difficulty", "0"], "but for the variant; leave out --difficulty"),
        (["a", "--variants", "all", "--random"], "but for the variant; leave out --random"),
    ],
)
def test_words_that_do_not_go_together_are_one_sentence(words, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rims-rl", "evaluate", *words])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 2 and sentence in capsys.readouterr().err
