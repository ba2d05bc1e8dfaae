"""The ``rims-rl`` command: each module parses the arguments of some commands, and calls one function of a verb.

Verbs import torch, so each command imports its own when it runs, and ``rims-rl --help`` stays quick.
"""

# In the order in which --help shows them.
# isort: off
from rims_rl.cli import training_commands  # noqa: F401
from rims_rl.cli import evaluation_commands  # noqa: F401
from rims_rl.cli import inspect_commands  # noqa: F401
from rims_rl.cli import export_commands  # noqa: F401
from rims_rl.cli import supervised_commands  # noqa: F401
from rims_rl.cli import imitate_commands  # noqa: F401
from rims_rl.cli import tune_commands  # noqa: F401
from rims_rl.cli import suite_commands  # noqa: F401
from rims_rl.cli import zoo_commands  # noqa: F401
from rims_rl.cli import bench_commands  # noqa: F401
from rims_rl.cli.app import app, main

# isort: on

__all__ = ["app", "main"]
