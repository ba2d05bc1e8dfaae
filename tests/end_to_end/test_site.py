"""Every block of code on the site, and in the README, runs; see tests/helpers/code_blocks.py for how."""

import re
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rims_rl.runs.folder import Arguments
from tests.helpers.code_blocks import BLOCK, ROOT, run_page
from tests.helpers.verbs import train_run

WRITTEN_BY_COMMANDS = ("docs/agents", "docs/results", "docs/_build", "docs/reference/commands.md")
# run by tests of their own, which look at what comes of them
RUN_ELSEWHERE = tuple(
    f"docs/how-to/{page}.md"
    for page in ("use_from_python", "change_the_mechanism", "your_own_environment", "your_own_core")
)
PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", ROOT / "zoo_configs/README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not page.relative_to(ROOT).as_posix().startswith(WRITTEN_BY_COMMANDS + RUN_ELSEWHERE)
]


def with_blocks():
    for page in PAGES:
        blocks = BLOCK.findall((ROOT / page).read_text())
        if blocks:
            slow = any(language in ("sh", "python") for _, language, _ in blocks)
            yield pytest.param(page, marks=pytest.mark.slow if slow else ())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", with_blocks())
def test_every_block_runs(page, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rims_runtime", raising=False)
    run_page(ROOT / page)


def test_every_logged_metric_has_its_meaning_and_no_other(tmp_path):
    page = (ROOT / "docs/reference/metrics.md").read_text()
    explained = {
        name for line in page.splitlines() if line.startswith("| `")
        for name in re.findall(r"`(\w+/\w+)`", line.split("|")[1])
    }  # fmt: skip
    small = ["num_rims=3", "num_active=2", "rim_size=4", "n_envs=2", "n_steps=8", "n_timesteps=3200"]
    ppo = ["batch_size=16", "n_epochs=2", "clip_range_vf=0.2", "n_timesteps=512"]
    logged = set()
    for env, algo, settings in (("Pendulum-v1", "ppo", small + ppo), ("CartPole-v1", "a2c", small)):
        arguments = Arguments(env=env, algo=algo, eval_freq=1600 if algo == "a2c" else 256, eval_episodes=1)
        board = EventAccumulator(str(train_run(arguments, settings, tmp_path) / "tensorboard")).Reload().Tags()
        logged |= {*board["scalars"], *board["images"], *board["histograms"]}
    logged = {re.sub(r"(active|epoch)_\d+$", lambda match: f"{match[1]}_{'k' if match[1] == 'active' else 'i'}", name)
              for name in logged}  # fmt: skip
    assert logged == explained - {"rollout/success_rate"}  # which needs an environment that says so
