"""``rims-rl transfer``: a suite about transfer, made of flags, run, and reported."""

from __future__ import annotations

import re
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.config.layers import parse_overrides, read_mapping
from rims_rl.suites.engines.engine import FAILED
from rims_rl.suites.pages.suite_page import report_suite
from rims_rl.suites.plan import make_plan, shipped
from rims_rl.suites.run import How, check, run
from rims_rl.suites.storage import read_results, results_folder


def transfer(
    sources: str,
    targets: str,
    cores: str,
    seeds: int,
    steps: int,
    carry: str,
    episodes: int,
    algo: str,
    overrides: list[str],
    name: str,
    results: Path | None,
    logdir: Path,
    how: How,
) -> None:
    """Write ``<logdir>/suites/<name>.yml``, which `rims-rl suite` reads too, run it, and write its page, also when jobs
    failed.

    ``sources``, ``targets`` and ``cores`` are names with commas between them.
    """
    check(how)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UserError(f"--name must be letters, digits, dots, - and _, got {name!r}")
    if name in shipped():
        raise UserError(f"--name {name} is a suite that comes with rims-rl; choose another name")
    data = {
        "title": f"Transfer from {_join(sources)} to {_join(targets)}",
        "envs": _split("--targets", targets),
        "algos": {algo: {}},
        "cores": {core: {} for core in _split("--core", cores)},
        "seeds": list(range(seeds)),
        "steps": steps,
        "overrides": parse_overrides(overrides),
        "evaluation": {"episodes": episodes},
        "transfer": {"sources": _split("--sources", sources), "carry": carry},
        "report": "transfer",
    }
    file = logdir / "suites" / f"{name}.yml"
    plan = make_plan(name, data, "transfer", str(file))
    if file.exists() and read_mapping(file) != data:
        raise UserError(f"{file} is another experiment; choose another --name than {name}, or remove that file")
    folder = results_folder(plan, results)
    if how.dry_run:
        return run(plan, folder, logdir, how)
    with replacing(file) as temporary:
        temporary.write_text(yaml.safe_dump(data, sort_keys=False))
    try:
        run(plan, folder, logdir, how)
    except SystemExit as stop:
        if stop.code == FAILED and read_results(plan, folder):
            report_suite(plan, folder, None)
        raise
    report_suite(plan, folder, None)


def _split(flag: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise UserError(f"{flag} must be different names with commas between them, got {text!r}")
    return names


def _join(text: str) -> str:
    return ", ".join(name.strip() for name in text.split(","))
