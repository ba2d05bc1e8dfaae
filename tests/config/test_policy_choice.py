"""The policy follows from what is observed; what cannot be learned from is one sentence."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal
from minigrid.minigrid_env import MiniGridEnv

from rims_rl.agents.policies.encoders import CodeGridEncoder, GridEncoder, NatureEncoder
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.config import zoo
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.inspect.record import InspectOptions, inspect
from rims_rl.training.train import TrainOptions, train
from tests.helpers.verbs import evaluate_run, user_error

SMALL = {"num_rims": 3, "num_active": 2, "rim_size": 4, "n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}
BYTES = {"low": 0, "high": 255, "dtype": np.uint8}
OBSERVATIONS = {
    "vector": (spaces.Box(-1, 1, (4,)), "MlpRimsPolicy", None),
    "image": (spaces.Box(shape=(40, 48, 3), **BYTES), "CnnRimsPolicy", NatureEncoder),
    "channels-first": (spaces.Box(shape=(4, 40, 40), **BYTES), "CnnRimsPolicy", NatureEncoder),
    "grey": (spaces.Box(shape=(40, 40), **BYTES), "CnnRimsPolicy", NatureEncoder),
    "small": (spaces.Box(shape=(8, 9, 3), **BYTES), "CnnRimsPolicy", GridEncoder),
    "small-grey": (spaces.Box(shape=(8, 9), **BYTES), "CnnRimsPolicy", GridEncoder),
    "board": (spaces.Box(0, 3, (6, 7), np.uint8), "CnnRimsPolicy", CodeGridEncoder),
    "codes": (spaces.Box(0, 3, (6, 7, 2), np.uint8), "CnnRimsPolicy", CodeGridEncoder),
    "floats": (spaces.Box(0, 1, (30, 30, 3)), "MlpRimsPolicy", None),
    "stacked": (spaces.Box(0, 255, (4, 20, 20, 3), np.uint8), "MlpRimsPolicy", None),
    "dict": (spaces.Dict(a=spaces.Box(-1, 1, (3,)), b=spaces.Discrete(3)), "MultiInputRimsPolicy", None),
    "tuple": (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), "observations must be a Box, .* got Tuple", None),
    "text": (spaces.Text(5), "observations must be a Box, .* got Text", None),
    "nested": (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))), "observation 'a' must be a Box, .* got Dict", None),
}  # fmt: skip
LEARNED = [kind for kind, (_, policy, _) in OBSERVATIONS.items() if policy.endswith("RimsPolicy")]
ACTIONS = {
    "unbounded": (
        spaces.Box(-np.inf, np.inf, (2,)),
        "actions must have a finite lower and upper bound, got Box.*; give them bounds",
    ),
    "dict": (spaces.Dict(a=spaces.Discrete(2)), "actions must be a Box, .* got Dict"),
}


class Observed(gym.Env):
    """Has no metadata about rendering, and says nothing."""

    metadata = {}  # noqa: RUF012

    def __init__(self, kind="vector", actions=None):
        self.observation_space = OBSERVATIONS[kind][0]
        self.action_space = ACTIONS[actions][0] if actions else spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


class Coins(MiniGridEnv):
    """A subclass of somebody's own, whose mission has words of its own."""

    def __init__(self, **kwargs):
        super().__init__(MissionSpace(lambda: "collect the coins"), grid_size=6, max_steps=9, **kwargs)

    def _gen_grid(self, width, height):
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        self.put_obj(Goal(), width - 2, height - 2)
        self.place_agent()
        self.mission = "collect the coins"


def _made_elsewhere(**kwargs):
    return gym.wrappers.TransformReward(Coins(**kwargs), lambda reward: 2 * reward)


gym.register("Observed-v0", entry_point=Observed)
gym.register("Coins-v0", entry_point=Coins)
gym.register("WrappedCoins-v0", entry_point=_made_elsewhere)


@pytest.mark.parametrize("kind", LEARNED)
def test_each_kind_of_observation_is_trained_on_and_played(kind, tmp_path, caplog):
    _, policy, encoder = OBSERVATIONS[kind]
    caplog.set_level("INFO")
    how = {"n_timesteps": 16, "eval_freq": 0, "logdir": tmp_path, "threads": 1, "settings": SMALL}
    options = TrainOptions(env="Observed-v0", env_kwargs={"kind": kind}, **how)
    run = train(options).folder
    trained, _ = load_policy(run)
    assert type(trained).__name__ == policy
    assert encoder is None or type(trained.features_extractor) is encoder
    assert (f"so that {policy} reads them" in caplog.text) == (kind != "vector")
    assert evaluate_run(run, 2).lengths == [5, 5]
    recording = inspect(InspectOptions(run=run, threads=1))  # what is observed, or nothing, instead of pictures
    assert recording.recordings[0].steps == 5


@pytest.mark.parametrize("kind", [kind for kind in OBSERVATIONS if kind not in LEARNED])
def test_observations_that_cannot_be_learned_from_are_one_sentence_and_no_folder(kind, tmp_path):
    with user_error(f"Observed-v0 cannot be learned from: {OBSERVATIONS[kind][1]}"):
        train(TrainOptions(env="Observed-v0", env_kwargs={"kind": kind}, logdir=tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("actions", ACTIONS)
def test_actions_that_cannot_be_learned_are_one_sentence_and_no_folder(actions, tmp_path):
    with user_error(f"Observed-v0 cannot be learned from: {ACTIONS[actions][1]}"):
        train(TrainOptions(env="Observed-v0", env_kwargs={"actions": actions}, logdir=tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_user_may_choose_another_policy():
    env = resolve("Observed-v0", env_kwargs={"kind": "image"})
    config, sources = zoo.load(env, "ppo", overrides=["policy=MlpRimsPolicy"])
    assert config.policy == "MlpRimsPolicy" and sources["policy"] == "`settings`"


@pytest.mark.parametrize(("name", "sticky"), [("Pong-v4", 0.0), ("Pong-v0", 0.25), ("PongNoFrameskip-v0", 0.25)])
def test_old_names_of_atari_games_are_games(name, sticky):
    env = resolve(name)
    assert (env.name, env.rom, env.sticky, env.family) == (name, "pong", sticky, "atari")
    assert zoo.load(env, "ppo").config.policy == "CnnRimsPolicy"


@pytest.mark.parametrize("name", ["Coins-v0", "WrappedCoins-v0"])
def test_subclasses_of_minigrid_are_minigrid_wherever_they_are_defined(name):
    env = resolve(name)
    assert env.family == "minigrid" and env.observation == "symbolic"
    assert resolve(name, observation="rgb").observation == "rgb"
    envs = make_envs(env, 2, 0)
    seen = envs.reset()
    assert seen["image"].shape == (2, 7, 7, 3)
    assert len(set(seen["mission"][0])) == 3 and seen["mission"].max() <= envs.observation_space["mission"].high.max()


def test_a_wrapper_that_changes_what_minigrid_shows_is_not_overruled():
    wrappers = ["minigrid.wrappers.RGBImgPartialObsWrapper", "minigrid.wrappers.ImgObsWrapper"]
    env = resolve("MiniGrid-Empty-5x5-v0", env_wrapper=wrappers)
    assert env.family is None
    assert make_envs(env, 1, 0).observation_space.shape == (56, 56, 3)
    assert zoo.load(env, "ppo").config.policy == "CnnRimsPolicy"
    bonus = resolve("MiniGrid-Empty-5x5-v0", env_wrapper=["minigrid.wrappers.ActionBonus"])
    assert bonus.family == "minigrid"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"env_kwargs": {"colour": 1}}, "--env-kwargs: Observed-v0 takes no 'colour'; it takes .*max_episode_steps"),
        ({"env_wrapper": ["gymnasium.wrappers.Nope"]}, "--env-wrapper gymnasium.wrappers.Nope: .* has no Nope"),
        ({"env_wrapper": ["nope"]}, "--env-wrapper must be a dotted path, .* got 'nope'"),
        ({"env_wrapper": ["builtins.repr"]}, "--env-wrapper builtins.repr must give a gymnasium.Env, got str"),
        ({"gym_packages": ["no_such_module"]}, "--gym-packages no_such_module cannot be imported: ModuleNotFound"),
        ({"vec_env": "threads"}, "--vec-env must be 'dummy', 'subproc' or 'vector', got 'threads'"),
        ({"frame_stack": 2, "env_kwargs": {"kind": "grey"}}, "--frame-stack 2 stacks vectors, and images that have"),
    ],
)  # fmt: skip
def test_mistakes_about_an_environment_are_one_sentence(options, words, tmp_path):
    with user_error(words):
        train(TrainOptions(env="Observed-v0", logdir=tmp_path, settings=SMALL, **options))
    assert not list(tmp_path.iterdir())


def test_frames_are_stacked_in_training_and_evaluation(tmp_path):
    options = TrainOptions(
        env="Observed-v0", env_kwargs={"kind": "image"}, frame_stack=3, n_timesteps=16, logdir=tmp_path, threads=1,
        settings=SMALL,
    )  # fmt: skip
    run = train(options).folder
    policy, _ = load_policy(run)
    assert policy.observation_space.shape == (9, 40, 48)
    assert evaluate_run(run, 2).lengths == [5, 5]
