"""The tasks by name."""

from __future__ import annotations

import difflib

from rims_rl.common.errors import UserError
from rims_rl.supervised.task import Task, load
from rims_rl.supervised.tasks.adding import Adding
from rims_rl.supervised.tasks.bouncing_balls import BouncingBalls
from rims_rl.supervised.tasks.copying import Copying
from rims_rl.supervised.tasks.crops import Crops
from rims_rl.supervised.tasks.moving_mnist import MovingMnist
from rims_rl.supervised.tasks.sequential_mnist import SequentialMnist

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Copying, Adding, SequentialMnist, BouncingBalls, Crops, MovingMnist)
}


def find_task(name: str) -> type[Task]:
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(TASKS)}"
        raise UserError(f"there is no task called {name!r}; {hint}")
    return TASKS[name]


def print_tasks() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "what", "iterations", "batch", "core", title="rims-rl supervised TASK")
    for name, task in TASKS.items():
        config = load(task)
        core = f"{config.core} {config.num_rims}/{config.num_active}, {config.hidden_size} units"
        table.add_row(name, task.title, f"{config.iterations:,}", str(config.batch_size), core)
    Console().print(table)
