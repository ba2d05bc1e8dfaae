"""Recordings of real games, against episodes played by hand."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import cv2
import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.cli.app import shown_messages
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.inspect.record import InspectOptions, inspect
from rims_rl.inspect.recording import write_recording
from tests.helpers.untrained_runs import save_untrained
from tests.helpers.verbs import user_error

DOCS = (Path(__file__).parents[2] / "docs/how-to/inspect.md").read_text()


def record(run, out, **options):
    with shown_messages():
        inspect(InspectOptions(run=run, out=out, threads=1, **options))
    with np.load(out) as arrays:
        recorded = dict(arrays)
    return json.loads(str(recorded.pop("about"))), recorded


def decode(recorded):
    parts = np.split(recorded["frames"], recorded["frame_ends"][:-1])
    return np.stack([cv2.imdecode(part, cv2.IMREAD_COLOR)[..., ::-1] for part in parts])


def play_by_hand(run, env, steps, seed, deterministic):
    """The same arrays, from predict() and predict_values() and a trace of each step."""
    torch.manual_seed(seed)
    policy, _ = load_policy(run)
    envs = make_envs(env, 1, seed, clip_rewards=False)
    observations, state, starts, rows = envs.reset(), None, np.ones(1, bool), []
    for _ in range(steps):
        before = policy.core.initial_state(1) if state is None else [torch.as_tensor(part) for part in state]
        row = {"frames": envs.get_images()[0], "episode_starts": starts[0]}
        events = list(envs.env_method("objects_in_view")[0]) if env.id.startswith("RimsRL/Pickup") else []
        seen, _ = policy.obs_to_tensor(observations)
        with torch.no_grad():
            value = policy.predict_values(seen, before, torch.as_tensor(starts).float())
        with policy.core.trace() as trace:
            actions, state = policy.predict(observations, state, starts, deterministic)
        observations, rewards, starts, _ = envs.step(actions)
        events = [rewards[0] > 0, rewards[0] < 0, *([starts[0]] if env.rom else []), *events]
        row["events"] = np.array(events)
        first = trace.layers[0]  # which reads the observation
        inside = {name: getattr(first, name)[0, 0] for name in ("active", "input_attention", "communication")}
        inside["largest_state"] = np.abs(state[0][0, 0, :12]).reshape(3, -1).max(1)
        rows.append(row | inside | {"actions": actions[0], "rewards": rewards[0], "values": value[0, 0]})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize(
    ("name", "kwargs", "steps", "elements"),
    [
        ("Breakout", {"input": "spatial"}, 200, 49),
        ("PickupKnown", {"core": "rims"}, 80, 2),
        ("CartPole-v1", {}, 40, 1),
        ("CartPole-v1", {"core": "scoff"}, 40, 1),
        ("CartPole-v1", {"core": "rims-workspace"}, 40, 1),
        ("PickupKnown", {"core": "brims"}, 80, 3),  # and the layer above
        ("Breakout", {"core": "brims", "input": "spatial"}, 100, 50),
        ("Pendulum-v1", {}, 5, 1),  # its actions are vectors, and clipped
    ],
)
def test_every_array_is_that_of_a_game_played_by_hand(name, kwargs, steps, elements, tmp_path):
    run = save_untrained(tmp_path, name, **kwargs)
    about, recorded = record(run, tmp_path / "x.npz", episodes=100, max_steps=steps, seed=3, deterministic=False)
    env = resolve(name, backend="sb3" if name == "Breakout" else None)
    expected = play_by_hand(run, env, steps, 3, deterministic=False)
    np.testing.assert_array_equal(decode(recorded), expected.pop("frames"))
    assert recorded.keys() == expected.keys() | {"frames", "frame_ends"}
    for key, array in expected.items():
        np.testing.assert_array_equal(recorded[key], array, key)
    assert recorded["input_attention"].shape == (steps, 3, elements + 1) and len(about["elements"]) == elements
    if steps > 5:
        assert recorded["episode_starts"].sum() > 1, "the memory is set to zero in between"
        assert (recorded["active"].mean(0) > 0).all(), "RIMs take turns"


def test_where_cells_are_elements_the_picture_is_what_the_agent_sees_of_them(tmp_path):
    run = save_untrained(tmp_path, "PickupKnown", input="cells")
    about, recorded = record(run, tmp_path / "x.npz", max_steps=3, seed=3)
    envs = make_envs(resolve("PickupKnown", observation="rgb"), 1, 3)
    view, seen = envs.reset()["image"][0].transpose(1, 2, 0), decode(recorded)[0]
    assert seen.shape == (5 * 32, 5 * 32, 3)
    shrunk = cv2.resize(seen, view.shape[:2], interpolation=cv2.INTER_AREA)  # its tiles have 8 pixels
    assert np.abs(shrunk.astype(int) - view).mean() < 3
    assert about["grid"] == {"rows": 5, "columns": 5, "pitch": [0.2, 0.2], "field": [0.2, 0.2]}
    assert about["elements"][:2] == ["0,0", "0,1"] and about["elements"][25:27] == ["mission 0", "mission 1"]
    assert recorded["input_attention"].shape == (3, 3, 25 + 5 + 1)


def test_a_critic_with_memory_of_its_own_keeps_it(tmp_path):
    run = save_untrained(tmp_path, "CartPole-v1", critic="separate", num_layers=2)
    _, recorded = record(run, tmp_path / "x.npz", episodes=2)
    policy, _ = load_policy(run)
    envs = make_envs(resolve("CartPole-v1"), 1, 0)
    seen = [envs.reset()[0], *(envs.step([action])[0][0] for action in recorded["actions"][:-1])]
    zeros = (torch.zeros(2, 1, 12),) * 2
    starts = torch.as_tensor(recorded["episode_starts"]).float()
    with torch.no_grad(), policy.core.trace() as trace:
        values, *_ = policy.evaluate_actions(
            torch.as_tensor(np.stack(seen)), torch.as_tensor(recorded["actions"]), RNNStates(zeros, zeros), starts
        )
    np.testing.assert_allclose(recorded["values"], values.flatten(), atol=1e-5)
    np.testing.assert_allclose(recorded["input_attention"], trace.layers[0].input_attention[:, 0], atol=1e-5)
    np.testing.assert_array_equal(recorded["active"], trace.layers[0].active[:, 0])


def test_what_is_known_of_the_game_is_told(tmp_path, capsys):
    run = save_untrained(tmp_path / "PickupKnown_1", "PickupKnown")
    about, recorded = record(run, tmp_path / "x.npz", episodes=3, variant="novel-shape", seed=1)
    assert about["env"]["name"] == "PickupNovelShape" and about["elements"] == ["image", "mission"]
    assert about["action_names"] == ["left", "right", "forward", "pickup"] and about["fps"] == 10
    played = [(float(r), int(n)) for r, n in re.findall(r"score (\S+) after (\d+) steps", capsys.readouterr().out)]
    assert [(episode["score"], episode["steps"]) for episode in about["episodes"]] == played and len(played) == 3
    firsts = [episode["first_step"] for episode in about["episodes"]]
    assert firsts == np.flatnonzero(recorded["episode_starts"]).tolist() == [0, *np.cumsum([n for _, n in played])[:-1]]
    assert all(re.match("pick up the (red|green|blue|grey) (key|ball)", e["mission"]) for e in about["episodes"])
    assert "inspect/test" not in str(about) and str(tmp_path) not in str(about), "no folders of this machine"


def test_positions_are_where_the_convolutions_look(tmp_path):
    """A pixel changes exactly those positions of the feature map whose part of the picture it is in."""
    run = save_untrained(tmp_path, "Breakout", input="spatial")
    about, _ = record(run, tmp_path / "x.npz", max_steps=1)
    grid, encoder = about["grid"], load_policy(run)[0].pi_features_extractor
    black = torch.zeros(1, 4, 84, 84)
    for y, x in ((0, 0), (40, 17), (35, 36), (83, 60)):
        pixel = black.clone()
        pixel[0, :, y, x] = 255
        with torch.no_grad():
            reached = (encoder(pixel) != encoder(black)).any(-1).view(grid["rows"], grid["columns"]).numpy()
        inside = [
            np.array([i * pitch <= at / 84 < i * pitch + field - 1e-9 for i in range(count)])
            for at, count, pitch, field in zip(
                (y, x), (grid["rows"], grid["columns"]), grid["pitch"], grid["field"], strict=True
            )
        ]
        np.testing.assert_array_equal(reached, np.outer(*inside))


class Camera(gym.Env):
    """Shows people something else than the agent."""

    observation_space = gym.spaces.Box(0, 255, (40, 48, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode, self._random = render_mode, np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        return self._random.integers(0, 256, (40, 48, 3), np.uint8), {}

    def step(self, action):
        return self._random.integers(0, 256, (40, 48, 3), np.uint8), 0.0, False, False, {}

    def render(self):
        return np.zeros((10, 10, 3), np.uint8)


def test_attention_to_positions_is_shown_over_what_the_agent_sees(tmp_path):
    gym.register("Camera-v0", Camera)
    run = save_untrained(tmp_path, "Camera-v0", input="spatial")
    about, recorded = record(run, tmp_path / "x.npz", max_steps=3)
    env = Camera()
    env.reset()  # to see whether it can be shown
    np.testing.assert_array_equal(decode(recorded), [env.reset()[0], env.step(0)[0], env.step(0)[0]])
    assert (about["grid"]["rows"], about["grid"]["columns"]) == (1, 2) and about["fps"] == 7


def test_memory_does_not_grow_with_the_length_of_a_game(tmp_path):
    frame, attention = np.zeros((8, 8, 3), np.uint8), np.zeros((6, 50), np.float32)

    def peak(steps):
        tracemalloc.start()
        with write_recording(tmp_path / "x.npz", {}) as recorder:
            for _ in range(steps):
                recorder.add(frame, input_attention=attention)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(1050) < peak(50) + attention.nbytes * 1000 / 4
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_the_docs_list_every_array(tmp_path):
    run = save_untrained(tmp_path, "CartPole-v1")
    _, recorded = record(run, tmp_path / "demon.npz", max_steps=10)
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|", DOCS, re.MULTILINE))
    assert list(rows) == [*recorded, "about"]
    for name, array in recorded.items():
        assert rows[name] in (str(array.dtype), "of the action space")
    namespace = {}
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    exec(snippet.replace("demon.npz", str(tmp_path / "demon.npz")), namespace)
    np.testing.assert_array_equal(namespace["frame"], decode(recorded)[7])
    np.testing.assert_array_equal(namespace["usage"], recorded["active"].mean(0))


def test_what_cannot_be_recorded_is_one_sentence(tmp_path):
    run = save_untrained(tmp_path / "rims", "CartPole-v1")
    lstm = save_untrained(tmp_path / "lstm", "CartPole-v1", core="lstm")
    (tmp_path / "file").touch()
    for policy, options, words in (
        (lstm, {}, "inspect looks at RIMs, and .*lstm has the core 'lstm'; give a run with rims"),
        (run, {"out": tmp_path / "x.json"}, r"--out must end in \.npz, got .*x\.json"),
        (run, {"html": tmp_path / "x.htm"}, r"--html must end in \.html, got .*x\.htm"),
        (run, {"out": tmp_path / "file/x.npz"}, r"file/x\.npz cannot be written: (Not a directory|File exists)"),
        (run, {"variant": "known"}, "CartPole-v1 has no variants"),
        (run, {"variant": "all"}, "--variant takes one variant, .* got 'all'"),
        (tmp_path / "nowhere", {}, "there is no folder .*nowhere"),
    ):
        with user_error(words):
            record(policy, **{"out": tmp_path / "x.npz"} | options)
    assert not list(tmp_path.glob("*x.*"))


def test_ctrl_c_keeps_what_was_recorded_and_the_default_is_in_the_run(tmp_path):
    run = save_untrained(tmp_path, "CartPole-v1")
    command = [sys.executable, "-c", "from rims_rl.cli import main; main()", "inspect", run, "--episodes", "100000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        while sum(path.stat().st_size for path in tmp_path.glob("recordings/.*/frames")) < 20_000:
            time.sleep(0.1)  # some hundred bytes a step: more than one episode
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and "stopped after" in output
    assert [path.name for path in (tmp_path / "recordings").iterdir()] == ["CartPole-v1_1.npz"]
    with np.load(tmp_path / "recordings/CartPole-v1_1.npz") as arrays:
        lengths = {len(arrays[name]) for name in arrays.files if name not in ("about", "frames")}
        episodes = json.loads(str(arrays["about"]))["episodes"]
    assert len(lengths) == 1 and lengths.pop() > 10 and episodes[0]["score"] == episodes[0]["steps"]
