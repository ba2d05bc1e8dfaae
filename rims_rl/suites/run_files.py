"""The runs of a suite's jobs: each is the folder of an ordinary run, ``<algo>/<Env>_<n>``, in the folder of its job."""

from __future__ import annotations

from pathlib import Path

from rims_rl.common.errors import UserError
from rims_rl.jobs.job import Progress
from rims_rl.runs.folder import is_finished


def find_run(folder: Path) -> Path | None:
    """The newest run of a job from which it can go on, if there is one."""
    runs = {path.parents[1] for path in folder.glob("*/*_*/checkpoints/[0-9]*.pt")}
    return max(runs, key=lambda run: int(run.name.rpartition("_")[2]), default=None)


def source_run(source: str, jobs: Path) -> Path:
    """The finished run of the job with the hash ``source``; ``jobs`` is where a suite has the folders of its jobs."""
    for folder in jobs.glob(f"*_{source}"):
        run = find_run(folder)
        if run is not None and is_finished(run):
            return run
    raise UserError(
        f"the run of the job {source}, from which others start, is not in {jobs}, or not finished; bring its folder "
        "there, or remove its result, so that it is trained again"
    )


class RunProgress(Progress):
    """Of the run of a job, from the lengths of its episodes, which it writes down after each rollout."""

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
        return self._run is not None and is_finished(self._run)
