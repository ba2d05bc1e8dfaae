"""``rims-rl suite report``: a page with pictures, from the result files of a suite and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.common.markdown import table
from rims_rl.jobs.job import Job
from rims_rl.suites.pages.atari_page import atari_page
from rims_rl.suites.pages.mechanisms_page import mechanisms_page, supervised_sections
from rims_rl.suites.pages.scores_page import scores_page
from rims_rl.suites.pages.transfer_page import transfer_page
from rims_rl.suites.pages.variants_page import variants_page
from rims_rl.suites.plan import Plan
from rims_rl.suites.results import Results, SupervisedResults, read_results, read_supervised

PAGES = {
    "variants": variants_page, "atari": atari_page, "transfer": transfer_page, "scores": scores_page,
    "mechanisms": mechanisms_page,
}  # fmt: skip


MANY = 20  # rows of a table that nobody reads


class Report(NamedTuple):
    path: Path
    jobs: int  # that are finished, and so on the page


def report_suite(plan: Plan, results: Path, out: Path | None = None) -> Report:
    """Write ``out``, by default ``<results>.md``, and PNGs whose names begin like it."""
    done, trained = read_results(plan, results), read_supervised(plan, results)
    if not (done or trained):
        raise UserError(f"{results} has no result of {plan.name}; run it first: rims-rl suite run {plan.argument}")
    out = out or results.parent / f"{results.name}.md"
    page = PAGES[plan.suite.report](plan, done, out) if done else ""
    sections = [_heading(plan, done, trained), page, supervised_sections(plan, trained), _provenance([*done, *trained])]
    with replacing(out) as temporary:
        temporary.write_text("\n\n".join(filter(None, sections)) + "\n")
    return Report(out, len(done) + len(trained))


def _heading(plan: Plan, done: Results, trained: SupervisedResults) -> str:
    suite, total, there_all = plan.suite, len(plan.all_jobs), len(done) + len(trained)
    heading = (
        f"# {suite.title}\n\nThis page is written by `rims-rl suite report {plan.argument}` from the result files of "
        f"the suite, of which each is one training run of {plan.steps} steps and its evaluation."
    )
    if there_all == total:
        return f"{heading} All {total} jobs are in: {_count(suite.seeds, 'seed')} of each setting."
    planned, there = Counter(job.group[1:] for job in plan.jobs), Counter(job.group[1:] for job, _ in done)
    planned += Counter(("supervised", job.core_name) for job in plan.supervised)
    there += Counter(("supervised", job.core_name) for job, _ in trained)
    rows = [[*group, f"{there[group]} of {count}"] for group, count in planned.items()]
    heading += (
        f"\n\n**This page is partial: {there_all} of {total} jobs are in.** "
        f"`rims-rl suite run {plan.argument}` goes on with the others."
    )
    # of many cores the tables of the page say how many seeds are in
    return heading if len(rows) > MANY else heading + "\n\n" + table(["algorithm", "core", "jobs in"], rows)


def _provenance(done: Sequence[tuple[Job, dict[str, Any]]]) -> str:
    hours = sum(sum(result["seconds"].values()) for _, result in done) / 3600
    resumed = sum(bool(result["resumed_from"]) for _, result in done)
    rows = [
        ["hours of all jobs together", f"{hours:.1f}"],
        ["jobs that were interrupted and resumed", str(resumed)],
        ["rims-rl", _all(f"{result['rims_rl']} ({result['commit']})" for _, result in done)],
        ["torch, numpy", _all(f"{result['torch']}, {result['numpy']}" for _, result in done)],
        ["machine", _all(f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for _, r in done)],
        ["evaluated", f"{min(r['date'] for _, r in done)[:10]} to {max(r['date'] for _, r in done)[:10]}"],
    ]
    return "## Where it was run\n\n" + table(["", ""], rows)


def _all(values: Iterable[str]) -> str:
    return "; ".join(sorted(set(values)))


def _count(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'s' if len(things) != 1 else ''}"
