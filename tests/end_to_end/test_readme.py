"""What the README and the pages say in numbers is what the result files say, and the README is short."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rims_rl.suites.plan import read_plan

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SPEED = (ROOT / "docs/results/speed.md").read_text()


def test_the_readme_is_a_screen_and_a_half():
    assert len(README.splitlines()) < 60 and "source .venv/bin/activate" in README


def test_every_linked_file_exists():
    for link in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / link).exists(), link


def test_tables_are_those_of_the_result_files():
    check = subprocess.run([sys.executable, ROOT / "docs/tables.py", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout
    pages = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    assert pages.count("<!-- table: ") == pages.count("<!-- end of table -->") == 13


def test_a_stale_table_is_named_and_written_anew(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.gif", "supervised"))
    (tmp_path / "README.md").write_text(README)
    page = tmp_path / "docs/results/speed.md"
    page.write_text(SPEED.replace("| stock | ", "| stock | 1", 1))
    command = [sys.executable, tmp_path / "docs/tables.py"]
    stale = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert stale.returncode == 1 and "speed.md: the table bench_train is stale; `make tables`" in stale.stdout
    subprocess.run(command, check=True)
    assert page.read_text() == SPEED


def test_numbers_in_sentences_are_those_of_the_result_files():
    ms = json.loads((ROOT / "docs/results/bench_core.json").read_text())["steps"][0]["ms"]
    assert f"takes {ms['rim 6/4'] / ms['fused']:.2f} times as long" in SPEED


def test_what_four_times_stock_would_leave_on_minigrid_is_in_the_result_file():
    train = json.loads((ROOT / "docs/results/bench_train_PickupKnown.json").read_text())
    stock = train["agents"]["stock"]
    left = (stock["rollout_ms"] + stock["update_ms"]) / 4
    assert f"4.0 would leave {left:.0f} ms" in (ROOT / "docs/reference/minigrid.md").read_text()


def test_what_suites_in_the_papers_size_would_take_is_computed_from_the_result_files():
    train, small = (
        json.loads((ROOT / f"docs/results/{name}.json").read_text()) for name in ("bench_train", "transfer_small")
    )
    speeds = {core: train["agents"][f"ours, {core}"]["steps_per_second"] for core in ("rims", "lstm", "none")}
    here = {system["core"]: system["steps_per_second"] for system in small["systems"]}
    slower = here["lstm"] / here["progressive"]
    speeds["progressive"] = speeds["lstm"] / slower

    def hours(name, core=None):
        jobs = [(job.steps, job.core if job.core in speeds else "rims") for job in read_plan(name).jobs]
        return sum(steps / speeds[each] / 3600 for steps, each in jobs if core in (None, each))

    suites, transfer = (
        (ROOT / f"docs/how-to/{name}.md").read_text().replace("\n", " ") for name in ("suites", "transfer")
    )
    numbers = [round(speeds[core]) for core in ("rims", "lstm", "none")]
    assert "RIMs {}, LSTM {}, no memory {} steps per second".format(*numbers) in suites
    assert f"`atari_paper` would take {round(hours('atari_paper'), -2):,.0f} hours of two cores" in suites
    assert f"`atari_no_input_attention` {round(hours('atari_no_input_attention'), -2):,.0f}, without" in suites
    columns, whole = hours("transfer_atari", "progressive"), hours("transfer_atari")
    assert "{} and {} steps per second".format(*numbers) in transfer
    assert f"about {round(whole - columns, -2):,.0f} hours of two cores" in transfer
    assert f"takes {slower:.2f} times as long" in transfer and f"take {round(columns, -2):,.0f} hours more" in transfer
    assert f"the whole {whole / 24 / 32:.0f} days with 64 cores" in transfer


def test_what_is_said_of_the_small_transfer_is_in_its_files():
    results = [json.loads(path.read_text()) for path in (ROOT / "docs/results/transfer_small").iterdir()]
    alone = [result for result in results if result["random"]]
    assert len(alone) == 12 and all(result["evaluation"]["mean"] > 2 * result["random"]["mean"] for result in alone)
    systems = json.loads((ROOT / "docs/results/transfer_small.json").read_text())["systems"]
    cells = [cell for system in systems for cell in system["matrix"]]
    assert all(cell["verdict"] == "neutral" and cell["score_95"][0] < 1 < cell["score_95"][1] for cell in cells)


def test_scores_are_those_of_the_result_files():
    result = json.loads((ROOT / "docs/results/demon_attack.json").read_text())
    for played in (result["final"], *result["baselines"]):
        low, high = played["mean_95"]
        assert f"{played['mean']:.0f} ({low:.0f} to {high:.0f})" in README
    assert f"{result['run']['steps']:,} steps" in README and f"seed {result['run']['seed']}" in README


def test_the_speed_of_exported_policies_is_that_of_the_result_file():
    cases = json.loads((ROOT / "docs/results/bench_export.json").read_text())["cases"]
    page = (ROOT / "docs/tutorials/ship_a_policy.md").read_text()
    assert f"{cases[0]['us']['torch'] / cases[0]['us']['onnx']:.1f} times as fast as in torch" in page
