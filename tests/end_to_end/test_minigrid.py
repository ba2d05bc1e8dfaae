"""MiniGrid from the command's side: train, evaluate and watch."""

import json

import cv2
import numpy as np
import pytest
import yaml

from rims_rl.inspect.enjoy import EnjoyOptions, enjoy
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import evaluate_run, train_run

SMALL = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=128", "n_envs=4", "n_steps=32"]


def run_of(tmp_path, env, algo="ppo", **options):
    batch = ["batch_size=64"] if algo == "ppo" else []
    return train_run(Arguments(env=env, algo=algo, eval_freq=64, eval_episodes=2, **options), SMALL + batch, tmp_path)


@pytest.mark.parametrize("observation", [None, "rgb"])
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_pickup_is_trained_and_evaluated_with_one_form_of_observation(algo, observation, tmp_path):
    run = run_of(tmp_path, "PickupKnown", algo, observation=observation)
    assert yaml.safe_load((run / "PickupKnown/args.yml").read_text())["observation"] == observation
    about = json.loads((run / "policy.json").read_text())
    assert about["policy"] == "MultiInputRimsPolicy"
    assert about["env_options"]["observation"] == (observation or "symbolic")
    shape = about["observation_space"]["spaces"]["image"]["shape"]
    assert shape == ([3, 40, 40] if observation == "rgb" else [5, 5, 3])
    evaluate_run(run, 5, out=tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["env"]["observation"] == (observation or "symbolic") and len(result["scores"]) == 5
    assert result["deterministic"] is False


@pytest.mark.parametrize("env", ["MiniGrid-MultiRoom-N2-S4-v0", "BabyAI-PickupDist-v0", "BabyAI-GoToLocal-v0"])
def test_levels_of_minigrid_and_babyai_are_trained_on_as_they_are(env, tmp_path):
    about = json.loads((run_of(tmp_path, env) / "policy.json").read_text())
    keys = {"image", "mission"} | ({"goal", "direction"} if "MultiRoom" in env else set())
    assert set(about["observation_space"]["spaces"]) == keys


def test_a_video_shows_the_whole_room_in_colour(tmp_path):
    run = run_of(tmp_path, "PickupKnown")
    video = cv2.VideoCapture(str(enjoy(EnjoyOptions(run=run, max_steps=5, threads=1)).video))
    frame = video.read()[1].astype(int)
    assert frame.shape == (2 * 6 * 32, 2 * 6 * 32, 3) and video.get(cv2.CAP_PROP_FPS) == 10
    assert np.ptp(frame, axis=2).max() > 100
