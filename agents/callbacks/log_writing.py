"""What reaches TensorBoard, and when."""

from __future__ import annotations

import logging

from rims_rl.agents.callbacks.base import TrainingCallback, due, rollout_size
from rims_rl.agents.callbacks.rim_statistics import record_rim_statistics
from rims_rl.agents.policies.rims_policies import DIVERGED

log = logging.getLogger(__name__)


class Logging(TrainingCallback):
    """Every ``interval`` rollouts: adds how RIMs are used, and writes all that was recorded to TensorBoard.

    Says it once if the state of the RIMs, which nothing bounds, has grown beyond all measure.
    """

    def __init__(self, interval: int) -> None:
        super().__init__()
        self._interval = interval
        self.notes: list[str] = []

    def _on_rollout_end(self) -> None:
        if due(self.model, self._interval * rollout_size(self.model)):
            largest = record_rim_statistics(self.model)
            if largest > DIVERGED and not self.notes:
                self.notes.append(
                    f"the memory diverges: its largest value is {largest:.0e} after {self.model.num_timesteps:,} "
                    "steps; it may help to set normalize=true, critic=separate or a smaller learning_rate"
                )
                log.info("note: %s", self.notes[0])
            self.model.dump_logs()
