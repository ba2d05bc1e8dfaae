"""Verbs as tests call them: in one thread, and with few words."""

import re
from contextlib import contextmanager

import pytest

from rims_rl.cli.app import with_flags
from rims_rl.common.errors import UserError
from rims_rl.config.layers import parse_overrides
from rims_rl.evaluation.evaluate import EvaluateOptions, evaluate
from rims_rl.training.train import ResumeOptions, TrainOptions, resume, train


def train_run(arguments, overrides, logdir, config=None):
    """Train with ``arguments`` and hyperparameters written ``key=value``; the folder of the run."""
    settings = parse_overrides(overrides)
    return train(TrainOptions(**arguments.model_dump(), settings=settings, config=config, logdir=logdir)).folder


def resume_run(run, n_timesteps=None):
    """Go on with ``run``, and return it."""
    return resume(ResumeOptions(run=run, n_timesteps=n_timesteps)).folder


def evaluate_run(run, episodes, **options):
    """Play a few episodes, and return how well it did."""
    return evaluate(EvaluateOptions(run=run, episodes=episodes, **{"n_envs": 2, "threads": 1, **options}))


@contextmanager
def user_error(words):
    """Insist on a UserError in which the command line would show ``words``."""
    with pytest.raises(UserError) as error:
        yield error
    shown = with_flags(str(error.value))
    assert re.search(words, shown), shown
