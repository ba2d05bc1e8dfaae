"""Atari with distractors from the command's side: train, resume, evaluate in variants, and watch."""

import json
import shutil

import cv2
import numpy as np
import pytest

from rims_rl.evaluation.options import VariantsOptions
from rims_rl.evaluation.play_variants import play_variants
from rims_rl.inspect.enjoy import EnjoyOptions, enjoy
from rims_rl.runs.folder import Arguments
from tests.helpers.verbs import resume_run, train_run

TINY = ["num_rims=3", "num_active=2", "rim_size=4", "n_timesteps=128", "n_envs=2", "n_steps=32", "batch_size=32"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    arguments = Arguments(env="Breakout", distractors="known", exact_resume=True, checkpoint_freq=64, eval_freq=0)
    settings = [*TINY, "n_epochs=1", "learning_rate=1e-3"]  # a schedule ends at 0, and the last update would do nothing
    return train_run(arguments, settings, tmp_path_factory.mktemp("logs"))


def test_a_resumed_run_is_exact_with_distractors(run, tmp_path):
    again = shutil.copytree(run, tmp_path / "run")
    (again / "checkpoints/128.pt").unlink()
    (again / "run.json").unlink()
    (again / "policy.safetensors").unlink()
    resume_run(again)
    assert json.loads((again / "run.json").read_text())["resumed_from"] == [64]
    assert (again / "policy.safetensors").read_bytes() == (run / "policy.safetensors").read_bytes()


def test_a_policy_is_played_clean_and_with_known_and_novel_distractors(run):
    about = json.loads((run / "policy.json").read_text())
    assert about["env_options"]["distractors"] == "known"
    variants = ["clean", "known", "novel-sprites"]
    options = VariantsOptions(runs=[run], variants=variants, episodes=2, n_envs=2, threads=1)
    result = play_variants(run, options)
    assert result["reference"] == "known" and result["env"]["distractors"] == "known"
    clean, known, novel = result["variants"].values()
    assert clean["env"] == {
        "id": "ALE/Breakout-v5",
        "backend": "ale",
        "rom": "breakout",
        "life_loss_ends_episode": True,
        "repeat_action_probability": 0.0,
        "max_frames": 108_000,
        "distractors": None,
    }
    assert known["env"]["distractors"] == dict.fromkeys(("sprites", "patches", "noise", "brightness"), "known")
    assert novel["env"]["distractors"] == known["env"]["distractors"] | {"sprites": "novel"}
    assert known["success"] is None and known["drop"] is None and known["length"] > 50
    assert clean["drop"] == known["return"] - clean["return"] and len(clean["drop_95"]) == 2


def test_a_video_shows_what_the_agent_sees(run, tmp_path):
    made = enjoy(EnjoyOptions(run=run, out=tmp_path / "x.mp4", max_steps=3, threads=1))
    video = cv2.VideoCapture(str(made.video))
    frame = video.read()[1].astype(int)
    assert frame.shape == (336, 336, 3) and np.ptp(frame, axis=2).max() < 10  # grey
