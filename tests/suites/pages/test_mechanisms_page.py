"""A suite of an environment with variants, one without, and a supervised task; its page, from known results."""

import copy
import json

import pytest
import yaml

from rims_rl.common.errors import UserError
from rims_rl.jobs.options import RunOptions
from rims_rl.suites.pages.suite_page import report_suite
from rims_rl.suites.plan import read_plan
from rims_rl.suites.run import run_suite

pytestmark = pytest.mark.slow  # nine jobs

SUITE = {
    "title": "a test",
    "envs": ["Recall", "CartPole-v1"],
    "supervised": {"switching": {"iterations": 3, "test_every": 3, "test_lengths": [5, 9], "test_mixtures": ["equal"]}},
    "algos": {"ppo": {"n_envs": 2, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "sequence_length": 32}},
    "cores": {
        "rims": {"rim_size": 4, "supervised": {"hidden_size": 24}},
        "two": {"core": "rims", "num_active": 2, "rim_size": 4, "core_kwargs": {"asleep": "drift"}},
        "gru": {"rim_size": 4, "supervised": {"hidden_size": 30, "switching": {"hidden_size": 36}}},
    },
    "seeds": [0, 1],
    "steps": 192,
    "solved": {"Recall": 0.5, "switching": 0.4},
    "evaluation": {"episodes": 4, "variants": {"Recall": ["known", "long50"]}},
    "report": "mechanisms",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The plan, and the results of its first seed."""
    folder = tmp_path_factory.mktemp("mechanisms")
    (folder / "tiny.yml").write_text(yaml.safe_dump(SUITE | {"seeds": [0]}, sort_keys=False))
    first = read_plan(str(folder / "tiny.yml"))
    assert run_suite(first, folder / "results", folder, RunOptions(jobs=2, threads=1)).failed == 0
    (folder / "tiny.yml").write_text(yaml.safe_dump(SUITE, sort_keys=False))
    return read_plan(str(folder / "tiny.yml")), folder / "results"


def test_cores_are_the_same_in_environments_and_in_tasks(ran):
    plan, _ = ran
    names = [job.name.rpartition("_")[0] for job in plan.all_jobs]
    assert names[0] == "Recall_ppo_rims_0" and names[6:9] == [f"switching_{core}_0" for core in SUITE["cores"]]
    assert [job.seed for job in plan.all_jobs] == [0] * 9 + [1] * 9
    rims, two, gru, *_ = (job.config for job in plan.supervised)
    assert (rims.core, rims.hidden_size, rims.num_active) == ("rims", 24, 4)
    assert (two.core, two.hidden_size, two.num_active, two.core_kwargs["asleep"]) == ("rims", 120, 2, "drift")
    assert (gru.core, gru.hidden_size) == ("gru", 36) and "asleep" not in gru.core_kwargs
    variants = {job.env: job.definition["evaluation"]["variants"] for job in plan.jobs}
    assert variants == {"Recall": ["known", "long50"], "CartPole-v1": None}


def test_every_kind_of_result_says_how_alive_the_rims_are(ran):
    plan, results = ran
    for job in plan.all_jobs[:9]:
        life = json.loads((results / f"{job.name}.json").read_text())["life"]
        if "gru" in job.name:
            assert life is None
        else:
            assert len(life["usage"]) == 6 and life["mean_active"] == pytest.approx(2 if "two" in job.name else 4)


def test_results_of_agents_say_what_their_updates_were_like(ran):
    plan, results = ran
    for job in plan.jobs[:6]:
        updates = json.loads((results / f"{job.name}.json").read_text())["updates"]
        assert ("rims/mask_flips" in updates) == ("gru" not in job.name)
        assert 0 <= updates["train/clip_fraction"] <= 1 and updates["train/first_ratio"] < 1e-3


def test_the_page_has_the_numbers_of_its_files(ran, tmp_path):
    plan, results = ran
    copied = tmp_path / "results"
    copied.mkdir()
    scores = {"rims": (0.75, 0.25), "two": (0.5, 0.5), "gru": (0.0, 1.0)}  # of the seeds
    for job in plan.all_jobs:
        first = next(
            other for other in plan.all_jobs if other.name.rpartition("_")[0] == job.name.rpartition("_")[0][:-1] + "0"
        )
        result = copy.deepcopy(json.loads((results / f"{first.name}.json").read_text()))
        result["definition"] = job.definition
        core = job.core if job in plan.jobs else job.core_name
        if job in plan.supervised:
            result["tests"] = {"5, equal": {"mean squared error": 1.0, "explained": scores[core][job.seed]}}
            if result["life"]:
                result["on_the_way"][-1]["alignment"] = (0.25, 0.75)[job.seed]
        elif "variants" in result["evaluation"]:
            for variant in result["evaluation"]["variants"].values():
                variant["success"] = scores[core][job.seed]
        (copied / f"{job.name}.json").write_text(json.dumps(result))
    page = report_suite(plan, copied).path.read_text()
    assert "All 18 jobs are in: 2 seeds of each setting." in page
    recall, cartpole, curves, switching = (page.split(f"## {title}")[1] for title in (
        "Recall, ppo", "CartPole-v1, ppo", "Learning curves", "Switching: linear systems that take turns"
    ))  # fmt: skip
    assert "| core | seeds | learned (0.5) | known | long50 | area | parameters |" in recall
    assert "| rims | 2 | 1 of 2 | 0.50 (0.25 to 0.75) |" in recall and "| two | 2 | 2 of 2 | 0.50 (" in recall
    assert "| core | seeds | return | area |" in cartpole and "learned" not in cartpole.split("##")[0]
    assert "| core | active | least used RIM | collapse |" in recall
    assert "largest state | other masks | first ratio | clipped |" in recall and "other masks" not in switching
    assert "results_ppo_curves.png" in curves and (tmp_path / "results_ppo_curves.png").stat().st_size > 5000
    assert "| core | seeds | learned (0.4) | explained, 5, equal | parameters |" in switching
    assert "| gru | 2 | 1 of 2 | 0.50 (0.00 to 1.00) |" in switching
    assert "| alignment with rules |" in switching and "alignment with" not in recall.split("##")[0]
    assert switching.count("| 0.50 (0.25 to 0.75) |\n") == 2


def test_a_page_of_what_is_there_says_what_is_missing(ran, tmp_path):
    plan, results = ran
    page = report_suite(plan, results, tmp_path / "page.md").path.read_text()
    assert "**This page is partial: 9 of 18 jobs are in.**" in page and "| supervised | rims | 1 of 2 |" in page


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"supervised": {"switchin": {}}}, r"tiny.yml: supervised.switchin, rims: .*switching"),
        ({"supervised": {"switching": {"rule": 3}}}, r"tiny.yml: supervised.switching, rims: .*rule"),
        ({"evaluation": {"episodes": 4, "variants": {"Recall": ["lon50"]}}}, "Recall has no variant 'lon50'"),
        ({"cores": {"a": {"core": "gru"}, "b": {"core": "gru"}}}, "are the same job"),
    ],
)
def test_a_mistake_is_one_sentence(changes, sentence, tmp_path):
    (tmp_path / "tiny.yml").write_text(yaml.safe_dump(SUITE | changes, sort_keys=False))
    with pytest.raises(UserError, match=sentence):
        read_plan(str(tmp_path / "tiny.yml"))
