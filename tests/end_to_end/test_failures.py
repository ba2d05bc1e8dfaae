"""What goes wrong in an environment, on a disk, or because of a machine is one sentence, and the run can go on."""

import json
import shutil
import socket
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rims_rl import cli
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.cli.app import with_flags
from rims_rl.common.errors import EnvironmentFailed, UserError
from rims_rl.runs.folder import Arguments
from rims_rl.training.train import ResumeOptions, resume
from tests.helpers.verbs import resume_run, train_run, user_error

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=16", "batch_size=32", "n_epochs=1"]


class Failing(gym.Env):
    """Does ``what`` at its 60th step, as long as ``broken``."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  as in Gymnasium
    broken = True

    def __init__(self, what=None, render_mode=None):
        self.what, self.count = what, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        reward, observation = 1.0, np.zeros(2, np.float32)
        if self.count == 60 and Failing.broken:
            if isinstance(self.what, BaseException):
                raise self.what
            if self.what == "nan reward":
                reward = float("nan")
            else:
                observation[1] = np.inf
        return observation, reward, self.count % 7 == 0, False, {}


FAILURES = {
    "ValueError": (ValueError("Shenanigans in finance.csv"), "raised ValueError: Shenanigans in finance.csv "),
    "OSError": (OSError(2, "No such file or directory", "my.csv"), "raised FileNotFoundError: [Errno 2] No such file"),
    "sys.exit": (SystemExit(0), "raised SystemExit: 0 (test_failures.py, line"),
    "reward": ("nan reward", "gave a reward that is not finite, nan, at its step 60"),
    "observation": ("inf observation", "gave an observation that is not finite, inf, at its step 60"),
}
for name, (what, _) in FAILURES.items():
    gym.register(f"Failing-{name}-v0", Failing, kwargs={"what": what})


def run_command(monkeypatch, capsys, *words):
    """Its exit code, and what it said."""
    monkeypatch.setattr(sys, "argv", ["rims-rl", *map(str, words)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return exit_.value.code, capsys.readouterr().err


@pytest.mark.parametrize("name", FAILURES)
def test_what_an_environment_does_is_said_in_its_name_and_the_run_can_go_on(name, tmp_path, monkeypatch, capsys):
    what, words = FAILURES[name]
    monkeypatch.setattr(Failing, "broken", True)
    arguments = Arguments(env=f"Failing-{name}-v0", eval_freq=0, checkpoint_freq=32)
    with pytest.raises(UserError) as error:
        train_run(arguments, [*SMALL, "n_timesteps=256"], tmp_path)
    run = tmp_path / f"ppo/Failing-{name}-v0_1"
    assert f"training stopped after 118 steps: Failing-{name}-v0 {words}" in str(error.value)
    assert with_flags(str(error.value)).endswith(
        f"when that is mended, go on from the checkpoint at 96 with rims-rl train --resume {run}"
    )
    if isinstance(what, BaseException):
        assert f"see {run}/log.txt" in str(error.value)
        assert "Traceback" in (run / "log.txt").read_text() and "raise self.what" in (run / "log.txt").read_text()
    code, said = run_command(monkeypatch, capsys, "evaluate", run, "--episodes", 30, "--n-envs", 2)
    assert code == 2 and said.startswith(f"rims-rl: Failing-{name}-v0 {words}") and "Traceback" not in said
    monkeypatch.setattr(Failing, "broken", False)
    resume_run(run, None)
    assert load_policy(run)[1].steps == 256


def test_an_environment_that_cannot_be_made_is_named(tmp_path, monkeypatch, capsys):
    gym.register("Failing-to-begin-v0", lambda **_: 1 / 0)
    code, said = run_command(monkeypatch, capsys, "train", "--env", "Failing-to-begin-v0", "--logdir", tmp_path)
    assert code == 2 and said.startswith("rims-rl: Failing-to-begin-v0 raised ZeroDivisionError: division by zero (")
    assert not list(tmp_path.iterdir())


UNLEARNABLE = "Failing-reward-v0 cannot be learned from"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            spaces.Text(5),
            f"{UNLEARNABLE}: observations must be a Box, Discrete, MultiDiscrete or MultiBinary space or a Dict",
        ),
        (
            spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}),
            f"{UNLEARNABLE}: observation 'a' must be a Box, Discrete",
        ),
        (spaces.Discrete(3), "VecNormalize only supports"),
    ],
)
def test_a_space_that_no_agent_can_have_is_named(space, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Failing, "observation_space", space)
    command = ("train", "--env", "Failing-reward-v0", "--set", "normalize=true", "--logdir", tmp_path)
    code, said = run_command(monkeypatch, capsys, *command)
    assert code == 2 and said.startswith(f"rims-rl: {words}") and not list(tmp_path.iterdir())


def test_a_missing_package_of_an_environment_is_gymnasiums_own_sentence(tmp_path, monkeypatch, capsys):
    def make(**_):
        raise gym.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    gym.register("Failing-to-import-v0", make)
    code, said = run_command(monkeypatch, capsys, "train", "--env", "Failing-to-import-v0", "--logdir", tmp_path)
    assert code == 2 and "needs a package that is not installed: Box2D is not installed, run `pip install" in said


@pytest.mark.parametrize("where", ["weights", "optimizer"])
def test_a_diverged_training_leaves_its_last_finite_checkpoint(where, tmp_path, monkeypatch):
    """Numbers that are not finite are never written, neither as a checkpoint nor as a policy."""
    from rims_rl.agents import RecurrentPPO

    update = RecurrentPPO.train

    def spoil(model):
        update(model)
        if model.num_timesteps == 96:
            if where == "weights":
                model.policy.value_net.bias.data.fill_(float("nan"))  # nothing but a look at it shows this
            else:
                next(iter(model.policy.optimizer.state.values()))["exp_avg"].fill_(float("inf"))

    monkeypatch.setattr(RecurrentPPO, "train", spoil)
    arguments = Arguments(env="CartPole-v1", eval_freq=0, checkpoint_freq=32)
    with pytest.raises(
        UserError, match=r"diverged: after 96 steps .* holds the policy as it was after 64; try a smaller"
    ):
        train_run(arguments, [*SMALL, "normalize=false", "n_timesteps=256"], tmp_path)
    run = tmp_path / "ppo/CartPole-v1_1"
    assert sorted(path.name for path in run.glob("checkpoints/*.pt")) == ["32.pt", "64.pt"]
    assert load_policy(run)[1].steps == 64
    monkeypatch.undo()
    resume_run(run, None)
    assert load_policy(run)[1].steps == 256


@pytest.mark.parametrize("device", ["gpu", "mps", "vulkan", "meta", "cuda:99", ""])
def test_a_device_that_is_not_there_is_named(device, tmp_path, monkeypatch, capsys):
    command = ("train", "--env", "CartPole-v1", "--device", device, "--logdir", tmp_path)
    code, said = run_command(monkeypatch, capsys, *command)
    assert code == 2 and f"there is no device {device!r} that torch can use here; give auto or cpu" in said
    assert not list(tmp_path.iterdir())


def test_weights_and_their_description_are_replaced_together(tmp_path, monkeypatch):
    """Killed between the two files, new weights must not stand beside old statistics."""
    from rims_rl.agents.saved import policy_files

    arguments = Arguments(env="CartPole-v1", eval_freq=0, checkpoint_freq=64)
    run = train_run(arguments, [*SMALL, "n_timesteps=64"], tmp_path)
    monkeypatch.setattr(policy_files, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert not resume(ResumeOptions(run=run, n_timesteps=128)).finished
    _, description = load_policy(run)
    assert description.steps == 128 and json.loads((run / "policy.json").read_text())["steps"] == 64
    assert description.normalization.observations[""].count > 100


@pytest.fixture
def full_disk(small_disk, tmp_path):
    """A small disk with a finished run on it, and then without room."""
    run = train_run(Arguments(env="CartPole-v1", eval_freq=0), [*SMALL, "n_timesteps=128"], tmp_path)
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    there = shutil.copytree(run, small_disk / "run")
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    return there


@pytest.mark.parametrize("command", [["evaluate", "--episodes", 2], ["report"]])
def test_a_full_disk_is_one_sentence(command, full_disk, monkeypatch, capsys):
    code, said = run_command(monkeypatch, capsys, command[0], full_disk, *command[1:])
    assert code == 2 and said.strip().endswith(": No space left on device") and "Traceback" not in said
    assert not list(full_disk.rglob(".*@*"))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n"])
def test_a_port_that_is_no_ray_is_one_sentence_soon(answer, monkeypatch, tmp_path):
    on_ray = pytest.importorskip("rims_rl.jobs.engines.on_ray")
    monkeypatch.setattr(on_ray, "SECONDS_TO_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as connection:
                connection.sendall(answer)
                connection.recv(100)
                stay.wait(10)

        stay, thread = threading.Event(), threading.Thread(target=serve)
        thread.start()
        with user_error(r"no Ray cluster answers at --ray-address 127\.0\.0\.1"):
            on_ray._connect(f"127.0.0.1:{server.getsockname()[1]}")
        stay.set()
        thread.join()


def test_outputs_that_are_not_finite_are_called_so_by_the_policy(tmp_path):
    run = train_run(Arguments(env="Pendulum-v1", eval_freq=0), [*SMALL, "n_timesteps=32"], tmp_path)
    policy, _ = load_policy(run)
    with torch.no_grad():
        policy.action_net.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="the policy gives numbers that are not finite"):
        policy.predict(np.zeros((1, 3), np.float32))
    assert issubclass(EnvironmentFailed, UserError)
