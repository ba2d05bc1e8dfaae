"""Videos of real games, decoded again, and what cannot be shown."""

import os
import re
import resource
import signal
import subprocess
import sys
import time

import cv2
import gymnasium as gym
import numpy as np
import pytest

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.saved.policy_files import describe_policy, save_policy
from rims_rl.cli.app import shown_messages
from rims_rl.common.errors import UserError
from rims_rl.common.rim_pictures import rim_colours
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.inspect.enjoy import EnjoyOptions, enjoy
from rims_rl.inspect.overlay import CELL, LABEL, MARGIN, PANEL, STEPS
from rims_rl.inspect.record import InspectOptions, inspect
from rims_rl.inspect.video_files import write_video
from tests.helpers.untrained_runs import save_untrained as save_run
from tests.helpers.verbs import user_error


def save_untrained(folder, policy, name, **origin):
    """The files of a run that ``enjoy`` reads."""
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 4}
    model = RecurrentPPO(policy, make_envs(resolve(name), 1, 0), n_steps=8, batch_size=8, seed=0, policy_kwargs=kwargs)
    save_policy(model.policy, folder, describe_policy(model.policy, kwargs, env=name, **origin))
    return folder


@pytest.fixture(scope="module")
def breakout(tmp_path_factory):
    return save_untrained(tmp_path_factory.mktemp("Breakout_1"), "CnnRimsPolicy", "Breakout")


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return save_untrained(tmp_path_factory.mktemp("CartPole_1"), "MlpRimsPolicy", "CartPole-v1")


def show(run, out=None, **options):
    """The video."""
    with shown_messages():
        return enjoy(EnjoyOptions(run=run, out=out, threads=1, **options)).video


def decode(path):
    """Frames of a video, and how many there are in a second."""
    video, frames = cv2.VideoCapture(str(path)), []
    while (read := video.read())[0]:
        frames.append(read[1][..., ::-1])
    return np.stack(frames), video.get(cv2.CAP_PROP_FPS)


def test_a_whole_game_of_atari_in_colour_as_mp4(breakout, capsys):
    out = show(breakout)
    assert out == breakout / "videos/Breakout_1.mp4" and os.listdir(out.parent) == [out.name]
    frames, fps = decode(out)
    steps = int(re.search(r"Breakout: score \d+ after (\d+) steps", capsys.readouterr().out)[1])
    assert frames.shape == (steps, 2 * 210, 2 * 160, 3) and fps == 15 and steps > 50
    rows = frames[0, 2 * 57 : 2 * 93, 2 * 80].astype(int)  # the wall of bricks, from red to blue
    assert rows[0, 0] > rows[0, 2] + 50 and rows[-1, 2] > rows[-1, 0] + 50
    assert show(breakout, max_steps=5).name == "Breakout_2.mp4"


def test_a_gif_has_the_exact_colours_and_the_same_seed_gives_the_same_one(breakout, tmp_path):
    files = [show(breakout, tmp_path / f"{n}.gif", max_steps=20, seed=seed) for n, seed in enumerate((1, 1, 2))]
    contents = [file.read_bytes() for file in files]
    assert contents[0] == contents[1] != contents[2]
    frames, _ = decode(files[0])
    env = make_envs(resolve("Breakout", backend="sb3"), 1, 1)
    env.reset()
    assert len(frames) == 20
    np.testing.assert_array_equal(frames[0, ::2, ::2], env.get_images()[0])  # twice as large


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("Breakout", {"input": "spatial"}),
        ("Breakout", {"input": "spatial", "core": "brims"}),
        ("PickupKnown", {}),
        ("PickupKnown", {"input": "cells"}),
    ],
)
def test_an_overlay_shows_the_game_and_which_rims_are_active(name, kwargs, tmp_path):
    run = save_run(tmp_path, name, **kwargs)
    frames, _ = decode(show(run, tmp_path / "x.mp4", episodes=100, max_steps=30, overlay=True, drop=[1]))
    out = tmp_path / "x.npz"
    inspect(InspectOptions(run=run, out=out, episodes=100, max_steps=30, threads=1, drop=[1]))
    with np.load(out) as recorded:
        active, starts = recorded["active"], recorded["episode_starts"]
    assert len(frames) == 30 and frames.shape[1] % 2 == frames.shape[2] % 2 == 0
    left = frames.shape[2] - PANEL + MARGIN + LABEL
    top, row = 66 if name == "Breakout" else 92, 28
    for step in range(1, 30):
        now = slice(left + (STEPS - 1) * CELL + 1, left + STEPS * CELL - 1)
        for k in range(3):
            pixels = frames[step, top + k * row + 4 : top + (k + 1) * row - 4, now].mean((0, 1))
            expected = np.multiply(rim_colours(3)[k], 255) if active[step, k] else (42, 46, 51)
            if not starts[step]:  # a line is there
                np.testing.assert_allclose(pixels, expected, atol=25)
    assert active[:, [0, 2]].any(0).all() and not active[:, 1].any()
    game = frames[0, :, : frames.shape[2] - PANEL]
    assert game.std() > 10, "the game is beside it"
    assert decode(show(run, tmp_path / "x.gif", max_steps=3, overlay=True))[0].shape == (3, *frames.shape[1:])


def test_other_difficulties_look_different(breakout, tmp_path):
    files = [show(breakout, tmp_path / f"{n}.gif", max_steps=2, difficulty=n) for n in (0, 1)]
    assert files[0].read_bytes() != files[1].read_bytes()
    with user_error("--difficulty must be one of 0, 1 in Breakout, got 9"):
        show(breakout, tmp_path / "x.gif", difficulty=9)


def test_any_environment_that_can_be_drawn(cartpole, tmp_path, capsys):
    frames, fps = decode(show(cartpole, tmp_path / "new folder/cart.mp4", episodes=2))
    steps = [int(n) for n in re.findall(r"score \d+ after (\d+) steps", capsys.readouterr().out)]
    assert len(steps) == 2 and frames.shape == (sum(steps), 400, 600, 3) and fps == 50
    assert frames.std() > 5 and (frames[0] != frames[steps[0] - 1]).any()
    assert decode(show(cartpole, tmp_path / "slow.mp4", max_steps=3, fps=2))[1] == 2


class Invisible(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_what_cannot_be_shown_is_one_sentence(breakout, cartpole, tmp_path, monkeypatch):
    gym.register("Invisible-v0", Invisible)
    invisible = save_untrained(tmp_path / "invisible", "MlpRimsPolicy", "Invisible-v0")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    (tmp_path / "file").touch()
    for run, options, words in (
        (invisible, {}, "Invisible-v0 cannot be shown: it has no render_mode rgb_array"),
        (breakout, {"window": True}, "--window needs a screen"),
        (breakout, {"window": True, "fps": 5}, "leave out --fps 5"),
        (breakout, {"out": tmp_path / "x.avi"}, r"must end in .mp4 or .gif, got .*x.avi"),
        (breakout, {"out": tmp_path / "file/x.mp4"}, "file/x.mp4 cannot be written: Not a directory"),
        (cartpole, {"game_mode": 1}, "--game-mode 1 is for Atari games"),
        (tmp_path / "nowhere", {}, "there is no folder .*nowhere"),
        (breakout, {"window": True, "overlay": True}, "leave out --window or --overlay"),
        (
            save_run(tmp_path / "lstm", "CartPole-v1", core="lstm"),
            {"overlay": True},
            "--overlay shows RIMs, and .*lstm",
        ),
    ):
        with user_error(words):
            show(run, **options)
    monkeypatch.setenv("DISPLAY", ":0")
    with pytest.raises(UserError, match="Invisible-v0 cannot be shown"):
        show(invisible, window=True)
    assert not list(tmp_path.glob("*.mp4"))


@pytest.mark.parametrize("game", ["breakout", "cartpole"])
def test_a_window_writes_no_file(game, request, monkeypatch):
    """On SDL's own driver for machines without a screen."""
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    run = request.getfixturevalue(game)
    before = sorted(run.rglob("*"))
    assert show(run, window=True, max_steps=5) is None
    assert sorted(run.rglob("*")) == before


def test_ctrl_c_keeps_what_was_recorded(cartpole, tmp_path):
    command = [sys.executable, "-c", "from rims_rl.cli import main; main()", "enjoy", cartpole, "--episodes", "100000"]
    process = subprocess.Popen(
        [*command, "--out", tmp_path / "x.mp4"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while not list(tmp_path.glob(".x.*.mp4")):
            time.sleep(0.1)
        time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and "stopped after" in output
    assert [path.name for path in tmp_path.iterdir()] == ["x.mp4"]
    frames, _ = decode(tmp_path / "x.mp4")
    assert len(frames) >= int(re.search(r"(\d+) frames", output.replace(",", ""))[1]) - 1 > 10


def test_a_file_that_cannot_be_finished_leaves_nothing_behind(tmp_path):
    """A limit on the size of files stands for a full disk."""
    frame, limit = (
        np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8),
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limit[1]))
    try:
        with (
            pytest.raises(UserError, match=r"x\.mp4 cannot be written"),
            write_video(tmp_path / "x.mp4", 5, 64, 64) as write,
        ):
            for _ in range(2000):
                write(np.roll(frame, 1, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not list(tmp_path.iterdir())


def test_an_error_while_playing_leaves_nothing_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), write_video(tmp_path / "x.mp4", 5, 64, 64) as write:
        write(np.zeros((64, 64, 3), np.uint8))
        1 / 0  # noqa: B018
    assert not list(tmp_path.iterdir())
