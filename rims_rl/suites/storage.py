"""Where a suite keeps things: small result files, which are worth committing, and the folders of its runs.

::

    <results>/<job>.json                    what came out; a job whose hash is here is finished
    <logdir>/suites/<suite>/<job>/          log.txt, job.json, and the folder of an ordinary run: <algo>/<Env>_<n>

The names hold the hash of the job, so that they alone say which run belongs to it, whatever was killed when.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rims_rl.common.errors import UserError
from rims_rl.runs.folder import read_result
from rims_rl.runs.records import JobResult, read_record
from rims_rl.suites.plan import Job, Plan


def results_folder(plan: Plan, given: Path | None) -> Path:
    """In a checkout of rims-rl, among its published results."""
    published = Path("docs/results")
    return given or (published if published.is_dir() else Path("results")) / plan.name


def job_folder(plan: Plan, job: Job, logdir: Path) -> Path:
    return logdir / "suites" / plan.name / job.name


def finished(results: Path) -> dict[str, Path]:
    """The result files, by the hash at the end of their names."""
    return {path.stem.rpartition("_")[2]: path for path in sorted(results.glob("*_*.json"))}


def read_results(plan: Plan, results: Path) -> list[tuple[Job, dict[str, Any]]]:
    """The jobs that are finished, in the order of the plan, and what came out."""
    paths = finished(results)
    return [(job, _read(job, paths[job.hash])) for job in plan.jobs if job.hash in paths]


def _read(job: Job, path: Path) -> dict[str, Any]:
    remedy = "take it from git, or remove it to run the job again"
    data = read_record(path, JobResult, remedy)
    played = data["evaluation"].get("variants")
    wanted = job.definition["evaluation"]["variants"]
    if data["definition"] != job.definition or (None if played is None else sorted(played)) != (
        None if wanted is None else sorted(wanted)
    ):
        raise UserError(f"{path} is damaged (it is not a result of {job.name}); {remedy}")
    return data


def find_run(folder: Path) -> Path | None:
    """The newest run of a job from which it can go on, if there is one."""
    runs = {path.parents[1] for path in folder.glob("*/*_*/checkpoints/[0-9]*.pt")}
    return max(runs, key=lambda run: int(run.name.rpartition("_")[2]), default=None)


def source_run(source: str, jobs: Path) -> Path:
    """The finished run of the job with the hash ``source``; ``jobs`` is where a suite has the folders of its jobs."""
    for folder in jobs.glob(f"*_{source}"):
        run = find_run(folder)
        if run is not None and read_result(run).get("finished"):
            return run
    raise UserError(
        f"the run of the job {source}, from which others start, is not in {jobs}, or not finished; bring its folder "
        "there, or remove its result, so that it is trained again"
    )


class Meter:
    """How far the run of a job is, from the lengths of its episodes, which it writes down after each rollout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: Path | None = None
        self._read = self._steps = 0

    def steps(self) -> int:
        """Of finished episodes: a little less than the run has done."""
        run = find_run(self._folder)
        if run is None or not (path := run / "0.monitor.csv").exists():
            return 0
        if run != self._run or path.stat().st_size < self._read:  # a run that goes on cuts its file first
            self._run, self._read, self._steps = run, 0, 0
        with path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        cells = (line.split(b",") for line in whole.split(b"\n") if not line.startswith((b"#", b"r")))
        self._steps += sum(int(row[1]) for row in cells if len(row) == 3 and row[1].isdigit())
        return self._steps

    def trained(self) -> bool:
        """Whether training is over."""
        return self._run is not None and bool(read_result(self._run).get("finished"))


def last_lines(log: Path, count: int = 8) -> str:
    """The end of what a job has said."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else ""
