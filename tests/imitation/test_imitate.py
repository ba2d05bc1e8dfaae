"""`rims-rl imitate` from nothing: bodies of MuJoCo, MiniGrid, Atari, and experts of every kind."""

import json
import sys
import warnings

import numpy as np
import pytest
from stable_baselines3 import PPO, SAC

from rims_rl import cli
from rims_rl.agents import RecurrentPPO
from rims_rl.agents.saved.policy_files import describe_policy, save_policy
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.imitation.experiment import ImitateOptions, plan_imitation
from rims_rl.imitation.expert import load_expert
from rims_rl.imitation.imitation_page import write_page
from rims_rl.imitation.task import Imitation
from rims_rl.imitation.trajectories import Watching, watch_expert
from rims_rl.supervised.training import Training
from tests.helpers.verbs import user_error

TINY = [
    "side=46", "hidden_size=12", "length=4", "batch_size=2", "iterations=3", "episodes=1", "test_sequences=1",
]  # fmt: skip
CHEETAH = {"env_kwargs": {"max_episode_steps": 12}}


def save_expert(folder, name, policy="MlpRimsPolicy", seed=0, **env_options):
    """An untrained run."""
    kwargs = {"core": "none", "num_rims": 3, "num_active": 2, "rim_size": 4}
    envs = make_envs(resolve(name, **env_options), 1, 0)
    model = RecurrentPPO(policy, envs, n_steps=8, batch_size=8, seed=seed, policy_kwargs=kwargs)
    others = {"env": name, "algo": "ppo", "seed": 0, "steps": 0}
    save_policy(model.policy, folder, describe_policy(model.policy, kwargs, env_options=env_options, **others))
    return folder


@pytest.fixture(scope="module")
def cheetah(tmp_path_factory):
    return save_expert(tmp_path_factory.mktemp("runs") / "cheetah", "HalfCheetah-v5", **CHEETAH)


@pytest.fixture
def imitate(tmp_path, monkeypatch, capsys):
    """Run the command line here, and return its exit code and what it said."""

    def run(*arguments, settings=TINY):
        sets = [word for setting in settings for word in ("--set", setting)]
        places = ["--results", tmp_path / "results", "--logdir", tmp_path / "logs", "--data-dir", tmp_path / "data"]
        words = ["rims-rl", "imitate", *arguments, *sets, *places, "--threads", "1"]
        monkeypatch.setattr(sys, "argv", list(map(str, words)))
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return exit_.value.code, capsys.readouterr()

    return run


def results(tmp_path, env):
    return [json.loads(path.read_text()) for path in sorted((tmp_path / "results" / env).glob("*_*.json"))]


def test_cores_learn_from_a_cheetah_and_are_tested_with_noise_in_its_joints(imitate, cheetah, tmp_path):
    noise = [*TINY, "strengths=[0.05]"]
    code, said = imitate(cheetah, "--core", "rims", "--core", "lstm", "--seeds", 2, settings=noise)
    assert code == 0, said.err
    assert "4 results: written to" in said.out.replace("\n", "")
    found = results(tmp_path, "HalfCheetah-v5")
    assert [result["definition"]["config"]["core"] for result in found] == ["lstm", "lstm", "rims", "rims"]
    for result in found:
        assert list(result["tests"]) == ["unperturbed", "noise 0.05"]
        for test, measures in result["tests"].items():
            assert measures["return"] == pytest.approx(np.mean(result["record"]["scores"][test]))
        assert result["record"]["steps_seen"] == 12 and result["record"]["loss"] == "squared error"
        assert str(tmp_path) not in json.dumps(result)
    reference = json.loads((tmp_path / "results/HalfCheetah-v5/expert.json").read_text())
    assert len(reference["tests"]["noise 0.05"]["expert"]) == len(reference["tests"]["unperturbed"]["random"]) == 4
    page = (tmp_path / "results.md").read_text()
    assert "| lstm | " in page and "5,400 ± 100" in page and "### Against lstm" in page and "**Partial**" in page
    assert "HalfCheetah-v5/frames.png" in page and (tmp_path / "results/HalfCheetah-v5/frames.png").exists()
    before = [path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.npy")]
    code, _ = imitate(cheetah, "--core", "rims", "--core", "lstm", "--seeds", 2, settings=noise)
    assert code == 0 and before == [path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.npy")]


def test_what_is_kept_of_an_unsteady_hand_is_what_it_meant(cheetah):
    expert = load_expert(str(cheetah), None, False)
    steady, unsteady = (watch_expert(expert, Watching(2, 0, 46, noise)).watched for noise in (0.0, 0.2))
    np.testing.assert_array_equal(steady.actions[0], unsteady.actions[0])  # before the first mistake
    assert (steady.pictures[5] != unsteady.pictures[5]).any() and (steady.starts == unsteady.starts).all()
    assert np.abs(unsteady.actions).max() < 0.2  # an untrained expert means next to nothing; its hand does more


def test_before_any_network_the_page_is_of_the_expert_alone(cheetah, tmp_path):
    settings = {"side": 46, "hidden_size": 12, "episodes": 1, "length": 4, "test_sequences": 1, "strengths": [0.1]}
    options = ImitateOptions(expert=str(cheetah), settings=settings, data_dir=tmp_path / "data")
    plan_imitation(options, tmp_path / "results", tmp_path / "logs")
    page = write_page(tmp_path / "results")
    text = page.path.read_text()
    other = save_expert(tmp_path / "other", "HalfCheetah-v5", seed=1, **CHEETAH)
    with user_error("has results of another expert, cheetah, got other; choose another folder with --results"):
        plan_imitation(options.model_copy(update={"expert": str(other)}), tmp_path / "results", tmp_path / "logs")
    assert page.results == 0 and "**Only the expert so far**" in text and "| the expert | " in text


@pytest.mark.slow
def test_the_papers_table_has_one_command(imitate, cheetah, tmp_path):
    code, _ = imitate(cheetah, "--paper", settings=[*TINY, "iterations=1", "strengths=[0.1]"])
    configs = [result["definition"]["config"] for result in results(tmp_path, "HalfCheetah-v5")]
    kinds = {(c["core"], c["num_active"], c["core_kwargs"].get("input_attention", True)) for c in configs}
    assert code == 0 and kinds == {
        ("lstm", 3, True), ("gru", 3, True), ("rims-robust", 3, True), ("rims", 3, True), ("rims", 6, True),
        ("rims", 6, False),
    }  # fmt: skip
    page = (tmp_path / "results.md").read_text()
    for paper in ("5,300 ± 200", "3,800 ± 200", "5,500 ± 100", "2,700 ± 400", "3,200 ± 50"):
        assert paper in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"), [("PickupKnown", "MultiInputRimsPolicy"), ("Breakout", "CnnRimsPolicy")], ids=str
)
def test_agents_of_minigrid_and_atari_are_experts_too(name, policy, imitate, tmp_path):
    code, said = imitate(save_expert(tmp_path / "run", name, policy), "--core", "gru")
    assert code == 0, said.err
    (result,) = results(tmp_path, name)
    assert list(result["tests"]) == ["unperturbed"] and result["record"]["loss"] == "cross entropy"
    assert result["record"]["steps_seen"] > 4 and f"## {name}" in (tmp_path / "results.md").read_text()


@pytest.mark.slow
def test_jobs_run_in_processes_of_their_own(imitate, cheetah, tmp_path):
    code, said = imitate(
        cheetah, "--core", "lstm", "--jobs", 1, settings=[*TINY, "dagger_every=2", "dagger_episodes=1"]
    )
    assert code == 0, said.out + said.err
    (result,) = results(tmp_path, "HalfCheetah-v5")
    assert result["record"]["steps_seen"] == 24  # the expert's episode, and one of which it said what it would do
    assert not list((tmp_path / "logs").rglob("asked_*"))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_a_model_of_stable_baselines3_is_an_expert_if_it_is_trusted(algorithm, imitate, tmp_path):
    model = tmp_path / "Pendulum-v1.zip"
    algorithm("MlpPolicy", "Pendulum-v1", seed=0).save(model)
    code, said = imitate(model)
    assert code == 2 and "is a pickle" in said.err and "--trust" in said.err
    code, said = imitate(model, "--trust", "--core", "lstm")
    assert code == 0, said.err
    assert results(tmp_path, "Pendulum-v1")[0]["record"]["steps_seen"] == 200
    code, said = imitate(model, "--trust", "--env", "MountainCarContinuous-v0")
    assert code == 2 and "has actions Box(-2.0, 2.0" in said.err and "takes Box(-1.0, 1.0" in said.err


@pytest.fixture
def pendulums(tmp_path, monkeypatch):
    """A dataset of Minari with two episodes."""
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    env, episodes = gym.make("Pendulum-v1", max_episode_steps=20), []
    for seed in (4, 5):
        env.action_space.seed(seed)
        kept = EpisodeBuffer(seed=seed, observations=[env.reset(seed=seed)[0]], actions=[])
        while not (kept.truncations and kept.truncations[-1]):
            kept.actions.append(env.action_space.sample())
            observation, reward, terminated, truncated, _ = env.step(kept.actions[-1])
            kept.observations.append(observation)
            kept.rewards.append(reward)
            kept.terminations.append(terminated)
            kept.truncations.append(truncated)
        episodes.append(kept)
    about = dict.fromkeys(("algorithm_name", "author", "author_email", "code_permalink", "description"), "us")
    with warnings.catch_warnings(action="ignore"):  # about what else it could be told
        minari.create_dataset_from_buffers("pendulum/random-v0", episodes, env, **about)
    return "minari:pendulum/random-v0"


def test_a_dataset_of_minari_is_played_again_and_looked_at(pendulums, imitate, tmp_path):
    code, said = imitate(pendulums, "--core", "lstm", settings=[*TINY, "episodes=2"])
    assert code == 0, said.err
    (result,) = results(tmp_path, "Pendulum-v1")
    assert result["record"]["steps_seen"] == 40
    assert result["definition"]["config"]["env_options"] == {"env_kwargs": {"max_episode_steps": 20}}
    assert (
        "expert" not in json.loads((tmp_path / "results/Pendulum-v1/expert.json").read_text())["tests"]["unperturbed"]
    )
    code, said = imitate(pendulums, settings=[*TINY, "dagger_every=1"])
    assert code == 2 and "is a dataset, which cannot answer" in said.err
    code, said = imitate(pendulums, settings=[*TINY, "episodes=3"])
    assert code == 2 and "episodes must be at most 2" in said.err
    code, said = imitate("minari:nobody/has-v0")
    assert code == 2 and "the dataset nobody/has-v0 cannot be read" in said.err


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ([], [], "which expert is missing"),
        (["nowhere"], [], "there is no folder nowhere"),
        (["CHEETAH", "--env", "Ant-v5"], [], "cheetah has actions Box(-1.0, 1.0, (6,), float32), and Ant-v5 takes Box"),
        (["CHEETAH", "--core", "lstn"], TINY, "did you mean 'lstm'?"),
        (["CHEETAH", "--core", "lstm", "--paper"], [], "--paper has cores of its own"),
        (["CHEETAH"], ["sides=3"], "there is no key 'sides'"),
        (["CHEETAH"], ["side=20"], "side must be greater than or equal to 46, got 20"),
        (["CHEETAH"], ["env=Ant-v5"], "env is the expert's own"),
        (["CHEETAH"], [*TINY, "length=13"], "length must be at most 12"),
        (["CHEETAH"], ["strengths=[-1]"], "strengths must be"),
        (["--page"], [], "has no results; run some first: rims-rl imitate EXPERT"),
    ],
)
def test_mistakes_get_one_sentence(arguments, settings, words, imitate, cheetah):
    code, said = imitate(*(cheetah if word == "CHEETAH" else word for word in arguments), settings=settings)
    assert code == 2 and words in said.err, said.err


def test_an_expert_that_sees_something_else_is_named(imitate, tmp_path):
    code, said = imitate(save_expert(tmp_path / "run", "MountainCar-v0"), "--env", "Acrobot-v1")
    assert code == 2 and "run sees Box" in said.err and "and Acrobot-v1 shows Box" in said.err


def test_only_bodies_have_joints_to_perturb(imitate, tmp_path):
    code, said = imitate(save_expert(tmp_path / "run", "CartPole-v1"), settings=[*TINY, "strengths=[0.1]"])
    assert code == 2 and "are of noise in joints, and CartPole-v1 has none" in said.err


def test_an_expert_whose_actions_cannot_be_learned_is_named(tmp_path):
    import gymnasium as gym

    gym.register("Many-v0", entry_point="tests.helpers.unseen_env:Many")
    try:
        with user_error(r"Many-v0 has actions MultiDiscrete.*, and imitation learns"):
            options = ImitateOptions(expert=str(save_expert(tmp_path / "run", "Many-v0")), data_dir=tmp_path)
            plan_imitation(options, tmp_path, tmp_path)
    finally:
        del gym.registry["Many-v0"]


def test_without_mujoco_a_sentence_says_what_to_install(imitate, cheetah, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, module)
    code, said = imitate(cheetah)
    assert code == 2 and "needs a package that is not installed" in said.err and "mujoco" in said.err


def test_answers_of_the_expert_survive_a_killed_training(cheetah, tmp_path):
    settings = {"side": 46, "hidden_size": 12, "length": 4, "batch_size": 2, "iterations": 6, "episodes": 1,
                "dagger_every": 2, "dagger_episodes": 1}  # fmt: skip
    options = ImitateOptions(expert=str(cheetah), cores=["lstm"], settings=settings, data_dir=tmp_path / "data")
    (job,) = plan_imitation(options, tmp_path / "results", tmp_path / "logs").jobs

    def training(folder):
        folder.mkdir(exist_ok=True)
        return Training(Imitation(job.config, options.data_dir), 0, folder)

    def go_on(to, each):
        for batch in each.batches(0):
            each.iterate(batch)
            if each.done == to:
                each.save()
            if each.done == to + 1:  # the answers after this iteration are of a training that was killed
                break
        return each

    whole = go_on(99, training(tmp_path / "whole"))
    go_on(3, training(tmp_path / "killed"))
    assert len(list((tmp_path / "killed").glob("asked_*"))) == 2
    resumed = training(tmp_path / "killed")
    assert resumed.done == 3 and resumed.task.record(resumed.network)["steps_seen"] == 24
    go_on(99, resumed)
    assert resumed.losses == whole.losses
    for ours, theirs in zip(resumed.network.parameters(), whole.network.parameters(), strict=True):
        assert (ours == theirs).all()
