"""Transfer: what is planned, how it is measured, and whether what must help is counted as helping."""

import functools
import json
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from matplotlib.image import imread
from typer.testing import CliRunner

from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.cli import app
from rims_rl.cli.app import with_flags
from rims_rl.common.errors import UserError
from rims_rl.evaluation.run_report import learning_curve
from rims_rl.suites.carry_check import check_transfers
from rims_rl.suites.pages.suite_page import report_suite
from rims_rl.suites.pages.transfer_page import Comparison, Group, _draw_curves, _draw_matrix
from rims_rl.suites.pages.transfer_scores import Run, curve_heights, mean_run, measure, measure_run
from rims_rl.suites.plan import make_plan, read_plan, transfer_cells
from rims_rl.suites.run_files import find_run
from rims_rl.suites.transfer import TransferOptions, plan_transfer
from tests.helpers.jobs import run_suite

SUITE = {
    "title": "a test",
    "envs": ["Boxing", "Asterix"],
    "algos": {"ppo": {"n_envs": 2, "n_steps": 16, "batch_size": 32, "rim_size": 4, "n_epochs": 1}},
    "cores": {"rims": {}, "lstm": {}, "progressive": {}},
    "seeds": [0, 1],
    "steps": 64,
    "evaluation": {"episodes": 1},
    "transfer": {"sources": ["Pong", "Breakout"]},
    "report": "transfer",
}


def plan_of(**changes):
    return make_plan("tiny", SUITE | changes, "tiny.yml", "tiny.yml")


# Plans


def test_sources_come_first_and_what_two_systems_share_is_planned_once():
    plan = plan_of()
    cells = transfer_cells(plan.suite, "tiny.yml")
    assert len(cells) == 2 * 2 * (2 + 2 + 1)  # seeds, targets; sources of rims and lstm, and all at once
    hashes = [job.hash for job in plan.jobs]
    # for each seed: rims and lstm on 2 sources and on 2 targets from scratch, and the cells
    assert len(set(hashes)) == len(hashes) == 2 * (4 + 4 + 10)
    assert [job.seed for job in plan.jobs] == [0] * 18 + [1] * 18
    for cell in cells:
        places = [hashes.index(job.hash) for job in (*cell.before, cell.scratch, cell.transfer)]
        assert places == sorted(places)
        assert cell.transfer.sources == [job.hash for job in cell.before]
        assert cell.scratch.source is None and cell.scratch.sources == [] and cell.scratch.definition["random"] == 1
    of_lstm, of_columns = ([c for c in cells if c.core == core] for core in ("lstm", "progressive"))
    assert {c.scratch.hash for c in of_columns} == {c.scratch.hash for c in of_lstm}
    assert of_columns[0].transfer.definition["config"]["policy_kwargs"] == {"columns": 2}
    assert of_columns[0].transfer.name.startswith("Boxing-from-Pong+Breakout_ppo_progressive_0_")
    frozen = plan_of(transfer={"sources": ["Pong", "Breakout"], "carry": "encoder=freeze"})
    same = set(hashes) & {job.hash for job in frozen.jobs}
    assert same == {job.hash for job in plan.jobs if job.source is None or job.core == "progressive"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"transfer": {"sources": ["Pongg"]}}, "tiny.yml: there is no environment called 'Pongg'; did you mean Pong"),
        ({"transfer": {"sources": []}}, "tiny.yml: transfer.sources must be a list of at least 1 item, got []"),
        ({"transfer": {"source": ["Pong"]}}, "tiny.yml: there is no key 'transfer.source'; did you mean sources?"),
        (
            {"transfer": {"sources": ["Pong"], "cary": ""}},
            "tiny.yml: there is no key 'transfer.cary'; did you mean carry?",
        ),
        ({"transfer": {"sources": ["Pong"], "carry": "core=fixed"}}, "tiny.yml: --carry core=fixed: 'fixed' must be"),
        (
            {"transfer": None},
            "tiny.yml: report: transfer does not fit; a suite has report: transfer if",
        ),
        ({"transfer": None, "report": "atari"}, "tiny.yml: cores: a progressive network needs sources"),
    ],
)
def test_a_mistake_in_a_suite_about_transfer_is_one_sentence(changes, sentence):
    with pytest.raises(UserError) as error:
        plan_of(**changes)
    assert sentence in with_flags(str(error.value))


def test_what_cannot_be_carried_over_is_said_before_anything_is_trained(tmp_path):
    check_transfers(plan_of())

    def sentence(**changes):
        with pytest.raises(UserError) as error:
            run_suite(plan_of(**changes), tmp_path / "results", tmp_path / "logs", 1, 1)
        assert not (tmp_path / "logs").exists()
        return str(error.value)

    heads = {"sources": ["Pong"], "carry": "heads=finetune"}
    text = sentence(transfer=heads)
    assert text.startswith("tiny: rims cannot be carried to Boxing: the agent of Pong does not fit this environment")
    assert "heads, where 'action_net.weight' is (6, 24) there, and (18, 24) here" in text
    text = sentence(transfer={**heads, "sources": ["Qbert"]}, envs=["Pong"])  # six actions each, with other meanings
    assert (
        "heads, because the actions are NOOP FIRE UP RIGHT LEFT DOWN there, and NOOP FIRE RIGHT LEFT RIGHTFIRE" in text
    )
    text = sentence(transfer={"sources": ["CartPole-v1"]}, envs=["Acrobot-v1"], overrides={"critic": "shared"})
    assert "core, where 'lstm_actor.layers.0.input_value' is (16, 4) there, and (16, 6) here" in text
    text = sentence(transfer={"sources": ["Pong"], "carry": "core=freeze,rims=0,9"})
    assert "there is no RIM 9; with num_rims=6 the last is 5" in text
    text = sentence(
        transfer={"sources": ["CartPole-v1"]},
        envs=["CartPole-v1"],
        cores={"progressive": {}},
        overrides={"critic": "shared"},
    )
    assert "progressive cannot be carried to CartPole-v1: columns need normalize=false" in text


def test_a_source_run_that_is_gone_is_one_sentence(tmp_path):
    plan = plan_of(cores={"lstm": {}}, seeds=[0])
    source = plan.jobs[0]
    (tmp_path / f"{source.name}.json").write_text("{}")  # its result is there, and its weights are not
    with pytest.raises(
        UserError, match=f"the run of the job {source.hash}, from which others start, is not in .*bring"
    ):
        run_suite(plan, tmp_path, tmp_path / "logs", 1, 1)


# Measures


def test_the_area_is_the_mean_height_of_the_curve():
    curve = [{"steps": 250.0, "mean": 0.0}, {"steps": 750.0, "mean": 10.0}, {"steps": 1000.0, "mean": 10.0}]
    heights = curve_heights(curve)
    assert len(heights) == 100 and heights[:25].max() == 0 and heights[75:].min() == 10
    assert heights.mean() == pytest.approx(5)
    result = {"curve": curve, "evaluation": {"mean": 12.0}}
    assert measure_run(result) == Run(pytest.approx(5), 0.0, 12.0)
    assert measure_run({"curve": []}) is None
    assert mean_run([Run(1, 2, 3), Run(3, 4, 7)]) == Run(2, 3, 5)


def test_steps_of_episodes_that_did_not_end_do_not_count_as_the_last_score(tmp_path):
    """Both runs score 1, 2, 3 and 4; of the second one's 100 steps, 60 are of episodes that were cut off."""
    areas = []
    for length in (25, 10):
        folder = tmp_path / str(length)
        folder.mkdir()
        rows = [f"{score},{length},0" for score in (1, 2, 3, 4)]
        (folder / "0.monitor.csv").write_text("\n".join(["#{}", "r,l,t", *rows]) + "\n")
        areas.append(curve_heights(learning_curve(folder)).mean())
    assert areas[1] == pytest.approx(areas[0])


def test_the_transfer_score_is_relative_to_scratch_above_random():
    def runs(*areas):
        return [Run(area, area / 10, area + 1) for area in areas]

    better = measure(runs(-4, -3, -2), runs(-12, -11, -10), random=-15)  # scores may be negative
    assert better.score == pytest.approx((-3 - -15) / (-11 - -15)) and better.verdict == "positive"
    # Welch: both variances 1, 4 degrees of freedom, standard error sqrt(2 / 3)
    half = 2.7764451 * np.sqrt(2 / 3)
    assert better.area == pytest.approx((8, 8 - half, 8 + half))
    assert better.score_95 == pytest.approx([1 + (8 - half) / 4, 1 + (8 + half) / 4])
    assert better.jump_start.value == pytest.approx(0.8) and better.final.value == pytest.approx(8)
    assert measure(runs(-12, -11, -10), runs(-4, -3, -2), -15).verdict == "negative"
    neutral = measure(runs(4, 6, 8), runs(3, 5, 7), 0)
    assert neutral.verdict == "neutral" and neutral.score == pytest.approx(1.2)  # above 1, and not counted
    assert measure(runs(9), runs(3, 5), 0).verdict == "unknown" and measure(runs(9), runs(3, 5), 0).score_95 is None
    hopeless = measure(runs(4, 4), runs(1, 1), random=2)  # scratch is worse than random: nothing to divide by
    assert hopeless.score is None and hopeless.verdict == "positive" and hopeless.area == (3, 3, 3)


# Pages


def fill(plan, results, area):
    """Results in which job j has the flat curve ``area(j)`` and random play scores 10."""
    results.mkdir()
    for job in plan.jobs:
        curve = [] if area(job) is None else [{"steps": 64.0, "mean": area(job), "episodes": 1}]
        others = {"mean_95": [0.0, 0.0], "median": 0.0, "std": 0.0, "episodes": 1, "deterministic": False}
        result = {
            "definition": job.definition, "parameters": {}, "on_the_way": [], "evaluation": {"mean": 1.0, **others},
            "steps": 64, "curve": curve, "random": {"mean": 10.0, **others}, "resumed_from": [],
            "date": "2026-01-01", "seconds": {"training": 1, "evaluation": 1}, "rims_rl": "", "commit": "", "torch": "",
            "numpy": "", "machine": {"cpu": "", "cores": 1},
        }  # fmt: skip
        (results / f"{job.name}.json").write_text(json.dumps(result))


def test_the_page_counts_verdicts_and_the_matrix_is_a_picture_and_json(tmp_path):
    plan = plan_of(seeds=[0, 1, 2])

    def area(job):
        if job.source is None:
            return 20.0 + job.seed
        better = {"Pong": 40.0, "Breakout": 60.0, "Pong+Breakout": 5.0}[job.source] + job.seed
        return better if job.name_of_env == "Boxing" else 20.0 + job.seed

    fill(plan, tmp_path / "tiny", area)
    report_suite(plan, tmp_path / "tiny", None)
    page, data = (tmp_path / "tiny.md").read_text(), json.loads((tmp_path / "tiny.json").read_text())
    assert "| rims, ppo | 1 of 2 (1) | 1 | 0 | 0 | 9 positive, 3 negative |" in page
    assert "| progressive, ppo | 0 of 2 (0) | 1 | 1 | 0 | 8 positive, 2 negative |" in page
    scores = {
        (s["core"], cell["source"], cell["target"]): cell["score"] for s in data["systems"] for cell in s["matrix"]
    }
    assert len(scores) == 2 * (3 + 3 + 2)
    assert scores["rims", "Pong", "Boxing"] == pytest.approx(31 / 11)
    assert scores["rims", "all", "Boxing"] == pytest.approx(41 / 11) and scores["rims", "all", "Asterix"] == 1
    assert scores["progressive", "Pong+Breakout", "Boxing"] == pytest.approx(-4 / 11)
    assert [system["counts"]["positive"] for system in data["systems"]] == [1, 1, 0]
    assert data["jobs"] == {"planned": len(plan.jobs), "in": len(plan.jobs)}
    assert "? is no score, because from scratch is no better than random play; an empty cell has no runs yet" in page
    assert {system["steps_per_second"] for system in data["systems"]} == {64}
    for name in ("tiny_matrix.png", "tiny_curves.png"):
        assert imread(tmp_path / name).std() > 0.03 and f"({name})" in page


def test_a_partial_page_says_so_and_leaves_out_what_is_not_there(tmp_path):
    plan = plan_of()
    fill(plan, tmp_path / "tiny", lambda job: None if job.name_of_env == "Asterix" else 20.0)
    for job in plan.jobs:
        if job.core == "rims" and job.source == "Pong":
            (tmp_path / f"tiny/{job.name}.json").unlink()
    report_suite(plan, tmp_path / "tiny", None)
    page, data = (tmp_path / "tiny.md").read_text(), json.loads((tmp_path / "tiny.json").read_text())
    assert "This page is partial: 32 of 36 jobs are in" in page and "| rims, ppo |" not in page
    assert "| lstm, ppo | 0 of 1 (0) | 1 | 0 | 0 | 3 positive |" in page
    assert [(c["source"], c["target"]) for c in data["systems"][0]["matrix"]] == [("Breakout", "Boxing")]


@pytest.mark.parametrize("missing", ["targets", "episodes"])
def test_a_page_with_nothing_to_compare_says_so(missing, tmp_path):
    plan = plan_of()
    fill(plan, tmp_path / "tiny", lambda job: None if missing == "episodes" else 20.0)
    if missing == "targets":
        for job in plan.jobs:
            if job.name_of_env in plan.suite.envs:
                (tmp_path / f"tiny/{job.name}.json").unlink()
    report_suite(plan, tmp_path / "tiny", None)
    page = (tmp_path / "tiny.md").read_text()
    assert "There is nothing to compare yet: no target has been learned both from scratch and with" in page
    assert "| system |" not in page and ".png" not in page


def test_systems_have_names_of_their_own_and_panels_are_wrapped(tmp_path):
    algos = {"ppo": SUITE["algos"]["ppo"], "a2c": {"n_envs": 2, "rim_size": 4}}
    envs = ["Boxing", "Asterix", "Alien", "Hero", "Krull"]
    plan = plan_of(envs=envs, algos=algos, cores={"lstm": {}}, transfer={"sources": ["Pong"]})
    cells = {("Pong", env): measure([Run(4, 4, 4)], [Run(1, 1, 1)], random=2) for env in envs}
    both = {Group(algo, "lstm"): Comparison(["Pong"], envs, cells) for algo in algos}
    axes = _draw_matrix(both).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lstm, ppo: Pong", "lstm, a2c: Pong"]
    assert {text.get_text() for text in axes.texts} == {"?"}
    figure = _draw_curves(plan, {})
    assert [axes.get_title() for axes in figure.axes if axes.axison][4:6] == ["Krull, lstm, ppo", "Boxing, lstm, a2c"]
    assert len(figure.axes) == 2 * 2 * 4 and len({axes.get_position().x0 for axes in figure.axes}) == 4
    assert figure.get_supxlabel() == "steps on the target" and figure.get_supylabel() == "score of an episode"


# The real thing


class Naming(gym.Env):
    """Each of 8 steps shows a shape in a colour; reward 1 for naming the shape, or, in another task, the colour."""

    observation_space = spaces.Box(0, 1, (8,), np.float32)
    action_space = spaces.Discrete(4)

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, asked="shape", colours=(0, 1), render_mode=None):
        self._asked, self._colours, self.render_mode = asked, colours, render_mode

    def _show(self):
        self._shape, self._colour = int(self.np_random.integers(4)), int(self.np_random.choice(self._colours))
        observation = np.zeros(8, np.float32)
        observation[[self._shape, 4 + self._colour]] = 1
        return observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._show(), {}

    def step(self, action):
        right = self._shape if self._asked == "shape" else self._colour
        self._t += 1
        return self._show(), float(action == right), self._t == 8, False, {}


@functools.cache
def register():
    gym.register("ShapesInTwoColours-v0", Naming)
    gym.register("ShapesInOtherColours-v0", functools.partial(Naming, colours=(2, 3)))
    gym.register("Colours-v0", functools.partial(Naming, asked="colour", colours=(0, 1, 2, 3)))


def run_all(plan, folder):
    for job in plan.jobs:
        job.run(folder / "jobs" / job.name, folder / "results", 1)
    report_suite(plan, folder / "results", None)
    matrix = json.loads((folder / "results.json").read_text())["systems"][0]["matrix"]
    return {cell["source"]: SimpleNamespace(**cell) for cell in matrix}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_task_in_other_colours_is_positive_and_an_unrelated_one_is_not(tmp_path):
    register()
    small = {"n_steps": 16, "batch_size": 128, "n_epochs": 4, "rim_size": 6, "learning_rate": 3e-3}
    transfer = {
        "sources": ["ShapesInTwoColours-v0", "Colours-v0"],
        "carry": "encoder=finetune,core=finetune,heads=finetune",
    }
    changes = {"envs": ["ShapesInOtherColours-v0"], "algos": {"ppo": small}, "cores": {"rims": {}}, "steps": 4096}
    plan = plan_of(**changes, transfer=transfer, seeds=[0, 1, 2], evaluation={"episodes": 64})
    cells = run_all(plan, tmp_path)
    assert cells["ShapesInTwoColours-v0"].verdict == "positive" and cells["ShapesInTwoColours-v0"].score > 1.2
    assert cells["Colours-v0"].verdict in ("neutral", "negative")
    assert cells["ShapesInTwoColours-v0"].jump_start["low"] > 0


def test_a_target_starts_from_the_run_of_its_source_and_random_play_is_measured(tmp_path):
    register()
    small = {"n_envs": 2, "n_steps": 16, "batch_size": 32, "rim_size": 2, "n_epochs": 1, "learning_rate": 1e-30}
    changes = {"envs": ["ShapesInOtherColours-v0"], "algos": {"ppo": small}, "seeds": [0], "steps": 32}
    transfer = {"sources": ["ShapesInTwoColours-v0", "Colours-v0"]}
    plan = plan_of(**changes, transfer=transfer, cores={"lstm": {}, "progressive": {}}, evaluation={"episodes": 50})
    run_all(plan, tmp_path)
    policies = {job.hash: load_policy(find_run(tmp_path / "jobs" / job.name))[0] for job in plan.jobs}
    for job in plan.jobs:
        result = json.loads((tmp_path / f"results/{job.name}.json").read_text())
        assert result["job"]["source"] == job.source
        if job.source is None:
            assert result["random"]["mean"] == pytest.approx(2, abs=0.8)  # a quarter of 8
            continue
        assert result["random"] is None and str(tmp_path) not in json.dumps(result)
        core, sources = policies[job.hash].core, [policies[source].core for source in job.sources]
        carried = core.columns if job.core == "progressive" else [core]
        for mine, theirs in zip(carried, sources, strict=True):
            for name, weight in theirs.state_dict().items():
                np.testing.assert_allclose(mine.state_dict()[name], weight, rtol=0, atol=1e-6)


def test_a_source_that_fails_takes_its_targets_with_it(tmp_path, capsys):
    changes = {"envs": ["Acrobot-v1"], "cores": {"lstm": {}}, "seeds": [0], "steps": 4096}
    algos = {"ppo": {"normalize": False, "critic": "shared", "learning_rate": 1e20, "n_envs": 8, "n_steps": 128}}
    plan = plan_of(**changes, algos=algos, transfer={"sources": ["Acrobot-v1"]})
    assert len(plan.jobs) == 2  # the source is what is learned from scratch, too
    with pytest.raises(SystemExit):
        run_suite(plan, tmp_path / "results", tmp_path / "logs", 2, 1)
    text = capsys.readouterr().out
    assert "training diverged" in text
    assert f"{plan.jobs[1].name}: failed, because it starts from {plan.jobs[0].name}" in text
    assert "2 of 2 jobs failed" in text


CARTPOLE = "transfer --sources CartPole-v1 --targets CartPole-v1 --seeds 1 --steps 64 --episodes 2 --set n_envs=2"
CARTPOLE += " --set n_steps=32 --set batch_size=32 --set rim_size=4 --set normalize=false --set critic=shared"


def test_the_command_writes_a_suite_that_other_commands_read_and_a_page_also_when_jobs_fail(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(
        "import sys\nfrom rims_rl.core.memories.baselines import LSTM\n\ndef core(*sizes, **options):\n"
        "    if 'job' in sys.argv:\n        raise ValueError('not in a job')\n    return LSTM(*sizes, **options)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def invoke(more):
        return CliRunner().invoke(app, f"{CARTPOLE} {more}".split())

    done = invoke("--core lstm,failing.core")
    assert done.exit_code == 1 and "2 of 4 jobs failed" in done.output, done.output
    page = (tmp_path / "results/transfer.md").read_text()
    assert "`rims-rl suite run logs/suites/transfer.yml` goes on with the others" in page and "| lstm, ppo |" in page
    plan = read_plan("logs/suites/transfer.yml")
    assert (plan.suite.envs, plan.suite.transfer.sources) == (["CartPole-v1"], ["CartPole-v1"])
    assert plan.jobs[0].definition["config"]["rim_size"] == 4
    done = invoke("--core lstm")
    assert isinstance(done.exception, UserError)
    assert with_flags(str(done.exception)).startswith(
        "logs/suites/transfer.yml is another experiment; choose another --name"
    )


def test_options_of_environments_hold_for_sources_and_targets(tmp_path):
    options = {"env_kwargs": {"max_episode_steps": 50}, "frame_stack": 2}
    wanted = TransferOptions(sources=["CartPole-v1"], targets=["CartPole-v0"], cores=["lstm"], env_options=options)
    plan = plan_transfer(wanted, tmp_path)
    assert {job.env for job in plan.jobs} == {"CartPole-v1", "CartPole-v0"}
    assert all(options.items() <= job.definition["env_options"].items() for job in plan.jobs)
    assert read_plan(str(tmp_path / "suites/transfer.yml")).jobs == plan.jobs


def test_a_dry_run_of_the_command_checks_first_and_leaves_nothing(tmp_path):
    words = "transfer --sources Pong --targets Boxing --core progressive --seeds 2 --steps 64 --dry-run"
    words += f" --set n_envs=2 --set n_steps=32 --set rim_size=4 --set policy_kwargs.net_arch=[8] --logdir {tmp_path}"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    assert "to do" in done.output and "0 of 6 jobs are finished" in done.output
    assert not list(tmp_path.iterdir())
    for more, sentence in (
        ("--core lstm --carry heads=finetune", "transfer: lstm cannot be carried to Boxing: the agent of Pong does"),
        ("--jobs 4097", "4,097 jobs of 1 thread are more than the"),
    ):
        done = CliRunner().invoke(app, f"{words} {more}".split())
        assert isinstance(done.exception, UserError) and with_flags(str(done.exception)).startswith(sentence)


def test_a_mistake_in_the_command_is_one_sentence_and_leaves_nothing(tmp_path):
    for flags, sentence in (
        ("--sources Pong,Pong --targets Boxing", "--sources must be different names with commas between them"),
        (
            "--sources Pong --targets Boxin",
            "transfer: there is no environment called 'Boxin'; did you mean Box",
        ),
        ("--sources CartPole-v1 --targets CartPole-v0 --env-kwargs foo=1", "--env-kwargs: CartPole-v1 takes no 'foo'"),
        ("--sources CartPole-v1 --targets CartPole-v0 --vec-env x", "--vec-env must be 'dummy', 'subproc' or 'vector'"),
        ("--sources Pong --targets Boxing --name a/b", "--name must be letters, digits, dots"),
        ("--sources Pong --targets Boxing --name smoke", "--name smoke is a suite that comes with rims-rl; choose"),
        ("--sources Pong --targets Boxing --engine slurm", "--engine must be local or ray, got 'slurm'"),
        ("--sources Pong --targets Boxing --gpus 1", "--ray-address and --gpus are for --engine ray"),
    ):
        done = CliRunner().invoke(app, ["transfer", *flags.split(), "--logdir", str(tmp_path / "none")])
        assert isinstance(done.exception, UserError) and sentence in with_flags(str(done.exception))
    assert not (tmp_path / "none").exists()
