"""Pictures and statistics of real recordings."""

import json

import cv2
import numpy as np
import pytest
from matplotlib.figure import Figure

from rims_rl.common.errors import UserError
from rims_rl.common.rim_pictures import draw_raster
from rims_rl.inspect.record import InspectOptions, inspect
from tests.helpers.untrained_runs import save_untrained
from tests.helpers.verbs import user_error

PICTURES = ("activity", "usage", "switches", "information")


def test_two_runs_side_by_side(tmp_path):
    runs = [
        save_untrained(tmp_path / "a", "PickupKnown", core="rims"),
        save_untrained(tmp_path / "b", "PickupKnown", num_rims=4, core="rims"),
    ]
    folder = tmp_path / "pictures"
    options = InspectOptions(run=runs[0], episodes=100, max_steps=120, threads=1, pictures=folder, compare=runs[1])
    assert inspect(options).recordings[0].file == runs[0] / "recordings/PickupKnown_1.npz"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["statistics.json", *(f"{p}.png" for p in PICTURES)]
    )
    told = json.loads((folder / "statistics.json").read_text())["runs"]
    for run, one in zip(runs, told, strict=True):
        with np.load(run / "recordings/PickupKnown_1.npz") as arrays:
            np.testing.assert_allclose(one["usage"], arrays["active"].mean(0))
            names = json.loads(str(arrays["about"]))["events"]
            seen = arrays["events"][:, names.index("distractor in view")]
            np.testing.assert_allclose(one["largest_state"], arrays["largest_state"].max(0))
        assert (
            one["mean_active"] == pytest.approx(one["num_active"]) and 0 <= one["collapse"] <= one["worst_usage"] <= 1
        )
        assert 0 < one["communication_entropy"] <= np.log(one["num_rims"]) + 1e-6 and one["attention_entropy"] > 0
        assert one["steps_with_event"]["distractor in view"] == seen.sum() > 8
        assert len(one["information"]["bits"]["distractor in view"]) == one["num_rims"]
        assert one["information"]["tests"] > 0 and "penalty" not in one["switches"]
    assert all(cv2.imread(str(folder / f"{name}.png")).std() > 5 for name in PICTURES)


def test_a_game_in_which_nothing_happens_has_pictures_too(tmp_path):
    run = save_untrained(tmp_path, "Breakout")
    inspect(InspectOptions(run=run, out=tmp_path / "x.npz", max_steps=1, threads=1, pictures=tmp_path))
    assert all((tmp_path / f"{name}.png").exists() for name in PICTURES)
    assert json.loads((tmp_path / "statistics.json").read_text())["runs"][0]["information"]["tests"] == 0


def test_what_cannot_be_compared_is_one_sentence(tmp_path):
    run = save_untrained(tmp_path / "rims", "CartPole-v1")
    lstm = save_untrained(tmp_path / "lstm", "CartPole-v1", core="lstm")
    with user_error(r"--compare .*lstm is shown in pictures: give --pictures FOLDER"):
        inspect(InspectOptions(run=run, max_steps=5, threads=1, compare=lstm))
    with pytest.raises(UserError, match=r"inspect looks at RIMs, and .*lstm has the core 'lstm'"):
        inspect(InspectOptions(run=run, max_steps=5, threads=1, pictures=tmp_path / "x", compare=lstm))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/statistics\.json cannot be written: Not a directory"):
        inspect(InspectOptions(run=run, max_steps=5, threads=1, pictures=tmp_path / "file"))


def test_the_raster_takes_plain_arrays():
    active = np.random.default_rng(0).random((50, 4)) < 0.5
    axes = Figure().subplots()
    draw_raster(axes, active, events={"marker": np.arange(50) == 7})
    np.testing.assert_array_equal(axes.images[0].get_array().T > 0, active)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["RIM 0", "RIM 1", "RIM 2", "RIM 3", "marker"]
