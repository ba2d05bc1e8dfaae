"""The page of a task, from result files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rims_rl.common.errors import UserError
from rims_rl.supervised.job import SupervisedJob
from rims_rl.supervised.task import load
from rims_rl.supervised.task_figures import figures
from rims_rl.supervised.task_names import find_task
from rims_rl.supervised.task_page import read_groups, write_page
from rims_rl.supervised.tasks.bouncing_balls import BouncingBalls
from rims_rl.supervised.tasks.copying import Copying
from rims_rl.supervised.tasks.moving_mnist import MovingMnist

PUBLISHED = Path(__file__).parents[2] / "docs/results/supervised"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What a real training leaves, to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    sizes = ["digits=2", "span=3", "test_spans=[3]", "hidden_size=12", "batch_size=4", "test_sequences=4"]
    job = SupervisedJob(Copying, load(Copying, ["core=lstm", *sizes, "iterations=1"]), 0)
    job.run(folder, folder, threads=1)
    return json.loads((folder / f"{job.name}.json").read_text())


@pytest.fixture
def write(tmp_path, finished):
    """Write one result of a task, with its usual settings but for those given."""

    def one(task, seed, settings, tests, curve=((100, 2.0), (200, 1.0)), record=None, stopped="budget"):
        config = load(task, settings).model_dump()
        changed = {"tests": tests, "curve": curve, "record": record or {}, "on_the_way": [], "stopped": stopped}
        definition = {"task": task.name, "seed": seed, "config": config}
        path = tmp_path / task.name / f"{len(list(tmp_path.glob('*/*')))}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(finished | changed | {"iterations": 200, "definition": definition}))

    return one


def page(task, folder):
    write_page(task, folder)
    return (folder / f"{task.name}.md").read_text()


def rows(text):
    """Cells of a page's tables, by what is in the first one."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {line[0]: line[1:] for line in lines}


def spans(entropy, accuracy):
    return {f"span {span}": {"cross entropy": entropy, "accuracy": accuracy} for span in (50, 100, 200, 500)}


def test_a_seed_that_diverged_counts_but_does_not_drown_the_others(tmp_path, write):
    rims = ["hidden_size=300", "core_kwargs={}"]
    write(Copying, 0, rims, spans(0.01, 1.0), stopped="learned")
    write(Copying, 1, rims, spans(0.03, 0.9), stopped="learned")
    write(Copying, 2, rims, spans(85185.9, 0.1), [(100, 2.0), (200, 0.5), (300, 3860.4), (400, 1.0)])
    write(Copying, 3, rims, spans(None, 0.1), [(100, 2.0), (150, None)], stopped="diverged")
    write(Copying, 0, ["core=lstm", "hidden_size=300"], spans(2.08, 0.1))
    text, label = page(Copying, tmp_path), "rims 6/4, 300 units, no dropout"
    trained, entropy, accuracy, against = (rows(text.split(f"## {name}")[1].split("\n## ")[0]) for name in (
        "What was trained", "Cross entropy", "Accuracy", "Against"))  # fmt: skip
    assert trained[label][:4] == ["2 of 4", "2 of 4", "200, 200, 200, 200", "1.000, 1.000, 1.000, >20"]
    assert entropy[label][0] == ">20<br>0.010, 0.030, >20, >20" and "85185" not in text
    assert accuracy[label][0].startswith("0.525 (0.1") and accuracy[label][0].endswith("<br>1.000, 0.900, 0.100, 0.100")
    assert against["lstm, 300 units"] == ["-0.425"] * 4 and "Cross entropy" not in text.split("## Against")[1]


def test_without_a_bounded_measure_medians_are_compared(tmp_path, write):
    for seed, loss in enumerate((100.0, 110.0, None)):
        write(BouncingBalls, seed, [], {"four": {"of all rolled out": loss}})
    write(BouncingBalls, 0, ["core=lstm"], {"four": {"of all rolled out": 130.0}})
    against = page(BouncingBalls, tmp_path).split("## Against rims 6/4, 600 units")[1]
    assert rows(against)["lstm, 600 units"] == ["+20.000"] and "Median over seeds" in against


def test_what_all_settings_share_is_said_once(tmp_path, write):
    write(Copying, 0, ["iterations=200", "batch_size=8"], spans(0.5, 0.9))
    write(Copying, 0, ["core=lstm", "iterations=200"], spans(2.08, 0.1))
    text = page(Copying, tmp_path)
    assert text.count("iterations=200") == 1 and "the zoo has not: iterations=200.\n" in text
    assert list(rows(text.split("## Accuracy")[1].split("##")[0])) == [
        "setting", "---", "rims 6/4, 600 units, batch_size=8", "lstm, 600 units",
    ]  # fmt: skip


def test_the_papers_numbers_are_beside_ours_or_folded_and_grouped(tmp_path, write):
    write(Copying, 0, ["core=lstm"], spans(2.08, 0.1))
    text = page(Copying, tmp_path)
    entropy = rows(text.split("## Cross entropy")[1].split("<details>")[0])
    assert entropy["lstm, 600 units"] == ["2.080", "0", "2.080", "2.080", "3.56", "2.080"]
    folded = text.split("<details>")[1].split("</details>")[0]
    assert [line for line in folded.splitlines() if line.endswith(":")] == [
        "Other memories:", "RIMs:", "RIMs, no communication:", "RIMs, no input attention:",
    ]  # fmt: skip
    assert rows(folded)["rims 9/9, 900 units"] == ["0.03", "0.24"] and "lstm, 600 units" not in rows(folded)


def test_the_picture_of_learning_cuts_what_diverged_and_draws_one_end(tmp_path, write):
    write(Copying, 0, [], spans(0.01, 1.0), [(100, 2.0), (200, 0.01)])
    write(Copying, 1, [], spans(85185.9, 0.1), [(100, 2.0), (200, 0.5), (300, 3860.4), (400, 1.0)])
    groups = read_groups(Copying, tmp_path)
    (group,) = groups.values()
    group[0]["on_the_way"] = [{"iteration": time, "tests": spans(0.5, 1.0)} for time in (100, 200)]
    training, test = figures(Copying, groups)["learning"].axes[:2]
    top = training.get_ylim()[1]
    assert training.get_yscale() == "log" and 2.0 < top < 20
    lines = [line.get_xydata() for line in training.lines if len(line.get_xdata())]
    assert [len(line) for line in lines] == [2, 3, 1]  # both seeds, and the cross at the end of the second
    np.testing.assert_allclose(lines[2], [[300, top]])
    assert test.lines[0].get_xydata().tolist() == [[100, 0.5], [200, 0.01]]


def test_ablations_are_beside_the_papers_of_another_width(tmp_path, write):
    write(Copying, 0, ["hidden_size=300"], spans(0.5, 0.9))
    write(Copying, 0, ["hidden_size=300", "core_kwargs.communication=false"], spans(1.5, 0.4))
    write(Copying, 0, ["hidden_size=450", "num_rims=9", "num_active=9"], spans(2.5, 0.3))
    ablations = page(Copying, tmp_path).split("## Ablations")[1]
    cells = [line.strip("| ").split(" | ") for line in ablations.splitlines() if line.startswith(("| 6", "| 9"))]
    assert cells == [
        ["9", "9", "–", "450", "900", "2.500", "0.03", "2.500", "0.24"],
        ["6", "4", "–", "300", "600", "0.500", "0", "0.500", "0"],
        ["6", "4", "no communication", "300", "600", "1.500", "0.7", "1.500", "5"],
    ]
    assert rows(ablations)["rims 6/4, 300 units, no communication"] == ["-0.500"] * 4
    assert rows(ablations)["rims 9/9, 450 units"] == ["-0.600"] * 4


def test_settings_are_compared_on_the_tests_they_share(tmp_path, write):
    measures = {"cross entropy rolled out": 100.0}
    write(
        MovingMnist,
        0,
        [],
        {name: measures for name in ("whole", *(f"without RIM {k}" for k in range(5)))},
        [(100, 200.0)],
    )
    write(MovingMnist, 0, ["core=lstm"], {"whole": {"cross entropy rolled out": 120.0}}, [(100, 200.0)])
    text = page(MovingMnist, tmp_path)
    assert text.count("## Cross entropy rolled out") == 1
    table = rows(text.split("## Cross entropy rolled out")[1].split("## Against")[0])
    assert table["lstm, 400 units"] == ["120.000", *["–"] * 5]
    assert rows(text.split("## Against")[1])["lstm, 400 units"] == ["+20.000"]


def test_films_have_their_settings_and_frame_numbers(tmp_path, write):
    row = ["0f" * 8, "f0" * 8]
    record = {"fed": 1, "every": 4, "film": {"truth": row, "whole": row}, "per_frame": {"four": [3.0, 2.0]}}
    for core in ("rims", "lstm"):
        write(MovingMnist, 0, [f"core={core}"], {"whole": {"cross entropy rolled out": 1.0}}, record=record)
    drawn = figures(MovingMnist, read_groups(MovingMnist, tmp_path))
    first, second = drawn["film"].subfigs
    assert first.get_suptitle() == "rims 5/2, 400 units" and second.get_suptitle() == "lstm, 400 units"
    assert [axes.get_title() for axes in first.axes] == ["1", "5", "", ""]
    assert [axes.get_ylabel() for axes in first.axes] == ["truth", "", "whole", ""]
    assert [axes.get_title() for axes in drawn["per_frame"].axes] == ["four"] and drawn["per_frame"].legends


def test_frames_of_appendix_d7_have_a_table(tmp_path, write):
    for seed in range(3):
        record = {"fed": 2, "per_frame": {"four": [9.0, 9.0, 1.0, 2.0, 3.0, 4.0 + seed, 5.0]}}
        write(BouncingBalls, seed, [], {"four": {"of all rolled out": 1.0}}, record=record)
    table = page(BouncingBalls, tmp_path).split("## The 4th and 5th frame rolled out")[1].split("![")[0]
    assert rows(table)["setting"] == ["four, 4th", "four, 5th"]
    assert rows(table)["rims 6/4, 600 units"] == ["5.000<br>4.000, 5.000, 6.000", "5.000<br>5.000, 5.000, 5.000"]


def test_a_damaged_result_is_named(tmp_path, write):
    write(Copying, 0, [], {})
    (path,) = (tmp_path / "copying").iterdir()
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match=r"\.json is damaged .* remove it to train again"):
        write_page(Copying, tmp_path)


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.md")), ids=lambda path: path.stem)
def test_a_published_page_is_what_its_results_say(path, tmp_path):
    shutil.copytree(path.with_suffix(""), tmp_path / path.stem)
    assert page(find_task(path.stem), tmp_path) == path.read_text()
    assert {each.name for each in tmp_path.glob("*.png")} == {
        each.name for each in PUBLISHED.glob(f"{path.stem}_*.png")
    }
