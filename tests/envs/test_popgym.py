"""POPGym's tasks by name: what they are, what agents see of them, and a run from training to export."""

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rims_rl import runtime
from rims_rl.config.zoo import load
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import Resolved, resolve
from rims_rl.envs.popgym.popgym_tasks import POPGYM_TASKS
from rims_rl.exporting.export import ExportOptions, export
from rims_rl.inspect.enjoy import EnjoyOptions, enjoy
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import evaluate_run, resume_run, train_run, user_error

PLAYED = [name for name in POPGYM_TASKS if not name.startswith("Labyrinth")]
TINY = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=32", "batch_size=64", "n_epochs=1"]


def test_names_are_those_that_popgym_registers():
    make_envs(resolve("RepeatFirstEasy"), 1, 0)
    registered = {id_ for id_ in gym.registry if id_.startswith("popgym-")}
    assert registered == {POPGYM_TASKS[name] for name in PLAYED}


def test_short_names_and_ids_are_the_same_and_have_a_section_of_the_zoo():
    env = resolve("RepeatPreviousEasy")
    assert env == resolve("popgym-RepeatPreviousEasy-v0")
    assert env == Resolved("RepeatPreviousEasy", "popgym-RepeatPreviousEasy-v0", None, 0.0)
    assert env.family == "popgym" and env.deterministic
    assert load(env, "ppo").sources["n_steps"] == "ppo.yml: popgym"
    with user_error("did you mean RepeatPreviousEasy"):
        resolve("RepeatPreviousEsay")


@pytest.mark.parametrize("name", PLAYED)
def test_agents_can_play_every_task(name):
    """Warnings are errors here. The same seed gives the same episodes."""
    played = []
    for _ in range(2):
        envs = make_envs(resolve(name), 2, 3)
        envs.action_space.seed(0)
        assert isinstance(envs.observation_space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete)
        steps, ended = [envs.reset()], 0
        while ended < 2:
            observations, rewards, dones, infos = envs.step(np.array([envs.action_space.sample() for _ in range(2)]))
            assert all(envs.observation_space.contains(each) for each in observations)
            ended += sum("episode" in info for info in infos)
            steps += [observations, rewards, dones]
        played.append(np.concatenate([np.ravel(each) for each in steps]))
    assert np.array_equal(*played)


def test_a_tuple_of_observations_is_one_vector():
    envs = make_envs(resolve("AutoencodeEasy"), 1, 0)
    [first] = envs.reset()
    assert envs.observation_space.shape == (6,), "whether to watch or to play, and the suit of the card"
    assert list(first[:2]) == [0, 1] and first[2:].sum() == 1, "it begins with watching"


def test_popgym_is_imported_only_for_its_tasks_and_without_it_a_sentence_says_what_to_install(tmp_path):
    (tmp_path / "popgym").mkdir()
    (tmp_path / "popgym/__init__.py").write_text("raise ModuleNotFoundError('not here', name='popgym')\n")
    code = (
        "import sys, rims_rl.envs.make as make, rims_rl.envs.names as names\n"
        "env = names.resolve('RepeatPreviousEasy')\n"
        "make.make_envs(names.resolve('CartPole-v1'), 1, 0)\n"
        "assert 'popgym' not in sys.modules\n"
        "try: make.make_envs(env, 1, 0)\n"
        "except make.UserError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert result.stdout == (
        "popgym-RepeatPreviousEasy-v0 needs POPGym, which is not installed; run: pip install 'rims-rl[popgym]'\n"
    ), result.stderr


def test_a_labyrinth_says_what_it_needs():
    with user_error("popgym-LabyrinthEscapeEasy-v0 needs mazelib, .* pip install 'popgym.navigation.'"):
        make_envs(resolve("LabyrinthEscapeEasy"), 1, 0)


@pytest.mark.parametrize("name", ["RepeatPreviousEasy", "AutoencodeEasy"])
def test_a_run_is_trained_resumed_evaluated_and_exported(name, tmp_path):
    arguments = Arguments(env=name, device="cpu", threads=1, eval_episodes=2, checkpoint_freq=64)
    run = train_run(arguments, [*TINY, "n_timesteps=128"], tmp_path)
    resume_run(run, 256)
    result = evaluate_run(run, 4)
    assert result.env["id"] == POPGYM_TASKS[name] and result.steps == 256 and -1 <= result.mean <= 1

    exported = export(ExportOptions(run=run, check_steps=120))
    assert exported.episodes > 0 and exported.difference < 1e-4
    agent, envs = runtime.load(exported.file), make_envs(resolve(name), 1, 7)
    assert envs.action_space.contains(int(agent.act(envs.reset()[0], True)))

    with user_error(f"{POPGYM_TASKS[name]} cannot be shown: it has no render_mode rgb_array"):
        enjoy(EnjoyOptions(run=run, threads=1))


def test_a_task_that_is_drawn_is_shown(tmp_path):
    arguments = Arguments(env="PositionOnlyCartPoleMedium", device="cpu", threads=1, eval_episodes=2)
    run = train_run(arguments, [*TINY, "n_timesteps=64"], tmp_path)
    assert enjoy(EnjoyOptions(run=run, threads=1, episodes=1)).video.stat().st_size > 1000
