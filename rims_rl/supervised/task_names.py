"""The tasks by name."""

from __future__ import annotations

from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean
from rims_rl.supervised.task import Task
from rims_rl.supervised.tasks.adding import Adding
from rims_rl.supervised.tasks.bouncing_balls import BouncingBalls
from rims_rl.supervised.tasks.copying import Copying
from rims_rl.supervised.tasks.crops import Crops
from rims_rl.supervised.tasks.moving_mnist import MovingMnist
from rims_rl.supervised.tasks.sequential_mnist import SequentialMnist
from rims_rl.supervised.tasks.switching import Switching
from rims_rl.supervised.tasks.translation import Translation

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (Copying, Adding, Switching, SequentialMnist, BouncingBalls, Crops, MovingMnist, Translation)
}


def find_task(name: str) -> type[Task]:
    if name not in TASKS:
        hint = did_you_mean(name, TASKS, f"there are {', '.join(TASKS)}")
        raise UserError(f"there is no task called {name!r}; {hint}")
    return TASKS[name]
