"""One real job of each kind, and pages made of its result and of copies in which the scores are known."""

import copy
import functools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.image import imread
from pytest import approx
from rliable import metrics

from rims_rl.common.errors import UserError
from rims_rl.config.zoo import human_scores, paper_scores
from rims_rl.evaluation.options import VariantsOptions
from rims_rl.evaluation.play_variants import play_variants
from rims_rl.suites.job import settings_of
from rims_rl.suites.pages.estimates import interquartile_mean, probability_of_improvement
from rims_rl.suites.pages.suite_page import report_suite
from rims_rl.suites.plan import EVALUATION_SEED, make_plan, read_plan
from rims_rl.suites.run_files import find_run
from tests.helpers.code_blocks import read_words

TINY = {"n_envs": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 1, "sequence_length": 32}
SUITES = {
    "variants": {
        "title": "a test",
        "envs": ["PickupKnown"],
        "evaluation": {"episodes": 8, "variants": ["known", "novel-colour", "control-colour"]},
        "curve": {"points": 2, "episodes": 4, "variants": ["novel-colour"]},
    },
    "atari": {"title": "a test", "envs": ["Breakout", "Pong"], "evaluation": {"episodes": 1}},
    "atari variants": {
        "title": "a test",
        "envs": ["Breakout"],
        "evaluation": {"episodes": 2, "variants": ["clean", "novel-noise"], "without_each_rim": True},
    },
    "scores": {"title": "a test", "envs": ["RepeatFirstEasy", "CountRecallEasy"], "evaluation": {"episodes": 2}},
}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """For each kind of report, a plan whose first job was really run, and the folder of that."""

    @functools.cache
    def run_first(kind):
        folder = tmp_path_factory.mktemp(kind)
        suite = SUITES[kind] | {
            "algos": {"ppo": TINY},
            "cores": {"rims": {"num_rims": 3, "num_active": 2, "rim_size": 4}, "lstm": {"rim_size": 4}},
            "seeds": [0, 1, 2, 3],
            "steps": 256,
            "report": kind.split()[0],
        }
        (folder / "tiny.yml").write_text(yaml.safe_dump(suite, sort_keys=False))
        plan = read_plan(str(folder / "tiny.yml"))
        plan.jobs[0].run(folder / "job", folder / "results", 1)
        return plan, folder

    return run_first


def read(plan, folder):
    return json.loads((folder / f"results/{plan.jobs[0].name}.json").read_text())


def copies(plan, folder, results, change, real=None):
    """Results of all jobs: the real one, changed by ``change(job, result)``; where that says False, none. ``real`` is
    the plan whose first job was run, if it is another."""
    results.mkdir()
    for job in plan.jobs:
        result = copy.deepcopy(read(real or plan, folder))
        result["job"] = {"env": job.name_of_env, "algo": job.algo, "core": job.core, "seed": job.seed}
        result["definition"] = job.definition
        if change(job, result) is not False:
            (results / f"{job.name}.json").write_text(json.dumps(result))


@pytest.mark.parametrize("kind", SUITES)
def test_a_result_says_what_the_run_did(kind, first):
    plan, folder = first(kind)
    result, run, job = read(plan, folder), find_run(folder / "job"), plan.jobs[0]
    assert result["hash"] == job.hash and result["definition"] == job.definition and result["steps"] == 256
    assert result["parameters"].keys() == {"encoder", "core", "heads"} and result["seconds"]["training"] > 0
    assert str(folder) not in json.dumps(result)
    rims = settings_of(job)
    assert len(result["life"]["usage"]) == rims.num_rims and sum(result["life"]["usage"]) == approx(rims.num_active)
    if kind == "atari variants":
        assert result["evaluation"]["reference"] == "clean" and result["without"].keys() == {"none", "0", "1", "2"}
        return
    if not plan.suite.evaluation.variants:
        assert result["evaluation"]["mean"] == json.loads((run / "evaluation.json").read_text())["mean"]
        return
    monitor = (run / "0.monitor.csv").read_text().splitlines()
    assert sum(point["episodes"] for point in result["curve"]) == len(monitor) - 2
    options = VariantsOptions(
        runs=[run], variants=["known", "novel-colour", "control-colour"], episodes=8, seed=EVALUATION_SEED, threads=1
    )
    played = play_variants(run, options)
    assert result["evaluation"]["variants"] == json.loads(json.dumps(played["variants"]))
    assert [point["steps"] for point in result["on_the_way"]] == [0, 128]
    options = options.model_copy(update={"variants": ["novel-colour"], "episodes": 4})
    kept = play_variants(run / "policies/128", options)
    assert result["on_the_way"][1]["variants"]["novel-colour"]["return"] == kept["variants"]["novel-colour"]["return"]
    job.run(folder / "job", folder / "results", 1)  # is finished
    assert read(plan, folder) == result


def test_the_page_of_variants_has_the_numbers_of_its_files_and_says_what_is_missing(first, tmp_path):
    plan, folder = first("variants")

    def change(job, result):
        if job.core == "lstm" and job.seed == 3:
            return False
        value = {"rims": 0.5, "lstm": 0.1}[job.core] + 0.1 * job.seed
        result["evaluation"]["variants"]["novel-colour"] |= {"success": value, "drop": 0.9 - value}
        result["evaluation"]["variants"]["control-colour"]["success"] = 0.9

    copies(plan, folder, tmp_path / "tiny", change)
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "**This page is partial: 7 of 8 jobs are in.**" in page and "| ppo | lstm | 3 of 4 |" in page
    assert "(number of seeds: rims 4, lstm 3)" in page
    success, drop, better = (line for line in page.splitlines() if line.startswith("| novel-colour |"))
    assert success.startswith("| novel-colour | 0.65 (0.5") and "| 0.20 (0.1" in success
    assert drop.startswith("| novel-colour | 0.25 (") and better == "| novel-colour | 1.00 (1.00 to 1.00) * |"
    assert "- Novelty alone costs (success in matched controls minus novel variants): rims 0.25 (" in page
    assert "- rims loses less by novelty than lstm (probability that a run of rims loses less: 1.00 (1.00 to 1" in page
    parameters = read(plan, folder)["parameters"]
    assert f"| all | {sum(parameters.values()):,} |" in page
    assert imread(tmp_path / "tiny_curves.png").std() > 0.05 and "(tiny_curves.png)" in page
    report_suite(plan, tmp_path / "tiny", tmp_path / "again.md")
    assert (tmp_path / "again.md").read_text().replace("again_", "tiny_") == page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["novel_distractors", "transfer_small"])
def test_the_published_page_is_what_its_files_give(name, tmp_path):
    published = Path(__file__).parents[3] / "docs/results"
    report_suite(read_plan(name), published / name, tmp_path / f"{name}.md")
    assert (tmp_path / f"{name}.md").read_text() == (published / f"{name}.md").read_text()
    if name == "transfer_small":
        mine, theirs = (
            json.loads((folder / f"{name}.json").read_text(), parse_float=lambda number: f"{float(number):.6g}")
            for folder in (tmp_path, published)
        )
        keys = ("what", "jobs", "suite", "systems", "seconds_of_jobs")
        assert {key: mine[key] for key in keys} == {key: theirs[key] for key in keys}


def test_the_page_of_atari_has_scores_beside_the_papers_and_counts_only_games_that_are_whole(first, tmp_path):
    plan, folder = first("atari")
    human = human_scores()["Breakout"]

    def change(job, result):
        if job.name_of_env == "Pong":
            result["evaluation"]["mean"] = -20.0 + job.seed
            return job.core == "rims" or job.seed == 0
        times = {"rims": 2, "lstm": 1}[job.core]
        result["evaluation"]["mean"] = human["random"] + times * (human["human"] - human["random"])

    copies(plan, folder, tmp_path / "tiny", change)
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "13 of 16 jobs are in" in page
    assert "| Breakout | 59.3 (59.3 to 59.3) | 30.5 (30.5 to 30.5) | 590 | 593 |" in page
    assert "| Pong | -18.5 (-20.0 to -17.0) | -20.0 | 20 | 20 |" in page
    pong = [(score + 20.7) / (14.6 + 20.7) for score in (-18.5, -20.0)]
    assert "| Breakout | 2.00 | 1.00 |\n| Pong | {:.2f} | {:.2f} |".format(*pong) in page
    assert "Interquartile mean over what is there for all cores, 1 of 2 games (seeds: 0, 1, 2, 3), with" in page
    assert "| rims | 2.00 (2.00 to 2.00) |\n| lstm | 1.00 (1.00 to 1.00) |" in page
    assert "| rims | 1.00 (1.00 to 1.00) |" in page and "higher mean score in 2 of 2 games" in page
    for picture in ("tiny_curves.png", "tiny_rims_over_lstm.png"):
        assert imread(tmp_path / picture).std() > 0.03 and f"({picture})" in page


def test_a_page_of_atari_with_missing_seeds_has_means_of_what_all_cores_have(first, tmp_path):
    plan, folder = first("atari")
    human = human_scores()

    def change(job, result):
        random, one = human[job.name_of_env]["random"], human[job.name_of_env]["human"]
        result["evaluation"]["mean"] = random + {"rims": 0.5, "lstm": 0.25}[job.core] * (one - random)
        return job.seed == 0 or (job.core == "rims" and job.seed == 1)

    copies(plan, folder, tmp_path / "tiny", change)
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "| Breakout | 0.50 | 0.25 |\n| Pong | 0.50 | 0.25 |" in page
    assert "for all cores, 2 of 2 games (seeds: 0), with" in page and "| rims | 0.50 |" in page
    for job in plan.jobs:
        if job.core == "rims" and job.seed == 0:
            (tmp_path / f"tiny/{job.name}.json").unlink()
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "| Pong | 0.50 | 0.25 |" in page and "No game is there yet with the same seed for all cores" in page


def test_a_page_of_atari_says_what_distractors_and_each_rim_are_worth(first, tmp_path):
    plan, folder = first("atari variants")
    random = human_scores()["Breakout"]["random"]

    def change(job, result):
        better = {"rims": 10.0, "lstm": 20.0}[job.core]
        for name, left in (("clean", 1.0), ("novel-noise", 0.1 * job.seed + {"rims": 0.5, "lstm": 0.2}[job.core])):
            score = random + left * better
            result["evaluation"]["variants"][name] |= {"return": score, "return_95": [score - 1, score + 1]}
        if (job.core, job.seed) == ("lstm", 3):  # is no better than random play
            result["evaluation"]["variants"]["clean"]["return_95"][0] = random
        if job.core == "lstm":
            result["without"] = result["life"] = None
            return
        for name, loss in (("0", 3.0), ("1", 0.5), ("2", -2.0)):
            result["without"][name] |= {"loss": loss, "loss_95": [loss - 1, loss + 1]}
        result["life"]["usage"] = [0.2, 0.9, 0.9] if job.seed % 2 else [1.0, 0.6, 0.4]

    copies(plan, folder, tmp_path / "tiny", change)
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    both = random + 10, random + 20
    assert "| Breakout | {0:.1f} ({0:.1f} to {0:.1f}) | {1:.1f} ({1:.1f} to {1:.1f}) | 590 |".format(*both) in page
    distractors, rims, usage = (page.split(f"## {title}, ppo")[1].split("\n## ")[0] for title in (
        "What distractors cost", "What each RIM is worth", "Usage of RIMs",
    ))  # fmt: skip
    assert "trained in `clean`." in distractors and "7 of 8" in distractors
    assert "over the 3 pairs of game and seed" in distractors and "| core | novel-noise |" in distractors
    assert "| rims | 0.60 (0.5" in distractors and "| lstm | 0.30 (0.2" in distractors
    assert "| Breakout | rims | 4 | 0.65 |\n| Breakout | lstm | 3 | 0.30 |" in distractors
    assert "lost without 4 of 12 RIMs, and won without 4." in rims and "lstm" not in rims
    assert rims.count("| 3.0 * | 0.5 | -2.0 * |") == 4
    assert "| Breakout | rims | 0.95, 0.75, 0.30 | 2.00 |" in usage


def test_the_full_table_of_the_paper_is_estimated_from_the_speeds_of_a_suite(first, tmp_path):
    plan, folder = first("atari")
    speeds = {"rims": 100, "lstm": 50}

    def change(job, result):
        result["steps"], result["seconds"] = 256, {"training": 256 / speeds[job.core], "evaluation": 1800.0}

    copies(plan, folder, tmp_path / "tiny", change)
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "| rims | 8 | 0.00 | 0.50 | 100 |\n| lstm | 8 | 0.00 | 0.50 | 50 |" in page
    one = [40e6 / speed / 3600 for speed in speeds.values()]
    for core, hours in (("rims-4", one[0]), ("rims-5", one[0]), ("lstm", one[1]), ("none", one[1])):
        assert f"| {core} | 123 | {hours:,.0f} | {123 * hours:,.0f} |" in page
    total = 2 * 123 * sum(one)
    assert f"takes {total:,.0f} core hours" in page and f"{total / 64 / 24:,.1f} days on 64 cores" in page
    (command,) = re.findall(r"^rims-rl (suite run .*)$", page, re.MULTILINE)
    read_words(shlex.split(command))


def test_the_papers_numbers_are_not_put_beside_rims_without_input_attention(first, tmp_path):
    plan, folder = first("atari")
    own = {"num_rims": 3, "num_active": 2, "rim_size": 4, "core_kwargs": {"input_attention": False}}
    cores = {"rims": {**own, "core_kwargs": {}}, "blind": {"core": "rims", **own}, "lstm": {"rim_size": 4}}
    other = make_plan("tiny", plan.suite.model_dump() | {"cores": cores}, "", "tiny.yml")
    copies(other, folder, tmp_path / "tiny", lambda job, result: None, real=plan)
    report_suite(other, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    with_attention, without = (page.index(f"## {core} over lstm") for core in ("rims", "blind"))
    assert "its own numbers (5 active RIMs) are put" in page[with_attention:without]
    assert "its own numbers" not in page[without:] and "no numbers of such RIMs" in page[without:]
    grey = [
        np.isclose(imread(tmp_path / f"tiny_{core}_over_lstm.png")[..., :3], 211 / 255, atol=0.01).all(2).sum()
        for core in cores
        if core != "lstm"
    ]
    assert grey[0] > 10 * grey[1]
    assert "our choice" in read_plan("atari_no_input_attention").suite.title  # which is the heading of its page


def test_the_page_of_scores_has_the_numbers_of_its_files(first, tmp_path):
    plan, folder = first("scores")
    plan = make_plan("tiny", plan.suite.model_dump() | {"seeds": [0, 1]}, "", "tiny.yml")

    def change(job, result):
        if (job.name_of_env, job.core, job.seed) == ("CountRecallEasy", "lstm", 1):
            return False
        result["evaluation"]["mean"] = {"rims": 0.5, "lstm": -0.25}[job.core] + 0.2 * job.seed
        result["curve"] = [{"steps": 256.0, "mean": 0.1 + 0.2 * job.seed, "episodes": 4}] if job.core == "rims" else []
        result["steps"], result["seconds"]["training"] = 256, 0.25 + 0.25 * job.seed
        result["parameters"] = {"encoder": 0, "core": 1000 * len(job.core), "heads": 234}

    copies(plan, folder, tmp_path / "tiny", change, real=first("scores")[0])
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "7 of 8 jobs are in" in page and "## Returns, ppo" in page
    tables = page.split("| environment | rims | lstm |\n")[1:]
    rows = [{row.split(" | ")[0]: row for row in each.split("\n")[1:3]} for each in tables]
    returns, areas, sizes, speeds = rows
    assert returns["| RepeatFirstEasy"] == "| RepeatFirstEasy | 0.60 (0.50 to 0.70) | -0.15 (-0.25 to -0.05) |"
    assert returns["| CountRecallEasy"] == "| CountRecallEasy | 0.60 (0.50 to 0.70) | -0.25 |"
    assert areas["| CountRecallEasy"] == "| CountRecallEasy | 0.20 (0.10 to 0.30) |  |", "no episode of lstm has ended"
    assert sizes["| CountRecallEasy"] == "| CountRecallEasy | 4,234 (4,000) | 4,234 (4,000) |"
    assert speeds["| CountRecallEasy"] == "| CountRecallEasy | 768 | 1,024 |"
    assert "most likely actions" in page and "over 2 episodes of the last policy, after 256 steps" in page
    red, _, blue = np.moveaxis(imread(tmp_path / "tiny_curves.png")[..., :3], 2, 0)
    rims, lstm = (blue > red + 0.1).sum(), (red > blue + 0.1).sum()
    assert rims > 3 * lstm > 0 and "(tiny_curves.png)" in page, "both are in the legend, and only rims has a curve"


def test_no_results_and_damaged_ones_are_one_sentence(first, tmp_path):
    plan, _ = first("atari")
    with pytest.raises(UserError, match=r"has no result of tiny; run it first: rims-rl suite run /.*/tiny\.yml"):
        report_suite(plan, tmp_path, None)
    (tmp_path / f"{plan.jobs[0].name}.json").write_text("{")
    with pytest.raises(UserError, match=r"is damaged .* remove it to run the job again"):
        report_suite(plan, tmp_path, None)


def test_aggregates_are_those_of_rliable():
    a, b = np.random.default_rng(0).integers(0, 5, (2, 5, 7)).astype(float)
    assert interquartile_mean(a)[0] == pytest.approx(metrics.aggregate_iqm(a))
    assert probability_of_improvement(a, b)[0] == pytest.approx(metrics.probability_of_improvement(a, b))


def test_every_game_of_the_paper_has_scores_of_random_play_and_of_a_human():
    assert human_scores().keys() == paper_scores().keys()
    assert all(score["human"] > score["random"] for score in human_scores().values())
