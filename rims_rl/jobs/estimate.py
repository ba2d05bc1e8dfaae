"""How long the jobs of an experiment would take, from a short measurement."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from rims_rl.common.cores import CORES
from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.job import Job
from rims_rl.jobs.options import RunOptions


class Estimate(NamedTuple):
    """Of the jobs that are not finished; one speed, in steps per second, for each group that is equally fast."""

    to_do: list[Job]
    speeds: dict[tuple[Hashable, ...], float]
    side_by_side: int

    def seconds(self, job: Job) -> float:
        """Of its training."""
        return job.steps / self.speeds[job.speed_group]

    @property
    def all_seconds(self) -> float:
        return sum(map(self.seconds, self.to_do))


def estimate(
    experiment: Experiment, options: RunOptions, watch: Callable[[Iterable[Job]], Iterable[Job]] = iter
) -> Estimate:
    """Train one job of each group for a moment. ``watch`` is given these jobs, and may show which is measured."""
    done = experiment.finished()
    to_do = [job for job in experiment.jobs if job.hash not in done]
    first_of_group = {job.speed_group: job for job in reversed(to_do)}
    speeds = {job.speed_group: job.measure_speed(options.threads) for job in watch(list(first_of_group.values()))}
    return Estimate(to_do, speeds, options.jobs or max(1, CORES // options.threads))
