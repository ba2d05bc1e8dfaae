"""Runs the jobs of an experiment, on this machine or on a Ray cluster."""

from __future__ import annotations

from rims_rl.jobs.engines.engine import Listener, Outcome
from rims_rl.jobs.engines.local import run_locally
from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.options import RunOptions, check_options


def run_jobs(experiment: Experiment, options: RunOptions, listener: Listener | None = None) -> Outcome:
    """Run what is not finished. Ctrl-C or SIGTERM lets running jobs save; another call goes on later."""
    check_options(options)
    if options.engine == "local":
        return run_locally(experiment, options, listener or Listener())
    from rims_rl.jobs.engines.on_ray import run_on_ray  # Ray is an extra

    return run_on_ray(experiment, options, listener or Listener())
