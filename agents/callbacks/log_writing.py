"""What reaches TensorBoard, and when."""

from __future__ import annotations

import logging
from collections import deque

from rims_rl.agents.callbacks.base import TrainingCallback, due, rollout_size
from rims_rl.agents.callbacks.rim_statistics import Life, record_rim_statistics
from rims_rl.agents.policies.rims_policies import DIVERGED

log = logging.getLogger(__name__)
WATCHED, STARVED = 20, 0.01  # looks in a row in which a RIM was active in a smaller share of steps


class Logging(TrainingCallback):
    """Every ``interval`` rollouts: adds how alive RIMs are, and writes all that was recorded to TensorBoard.

    Says it once if RIMs have starved, and if their state, which nothing bounds in the paper, grows beyond all measure.
    """

    def __init__(self, interval: int) -> None:
        super().__init__()
        self._interval = interval
        self._usages: deque[list[float]] = deque(maxlen=WATCHED)
        self._said: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        """What was said."""
        return list(self._said.values())

    def _on_rollout_end(self) -> None:
        if due(self.model, self._interval * rollout_size(self.model)):
            life = record_rim_statistics(self.model)
            if life is not None:
                self._warn(life)
            self.model.dump_logs()

    def _warn(self, life: Life) -> None:
        steps = f"after {self.model.num_timesteps:,} steps"
        if life.largest_state > DIVERGED:
            self._say(
                "diverges",
                f"the memory diverges: its largest value is {life.largest_state:.0e} {steps}; it may help to set "
                "normalize=true, critic=separate or a smaller learning_rate",
            )
        self._usages.append(life.usage)
        starved = [k for k, usages in enumerate(zip(*self._usages, strict=True)) if max(usages) < STARVED]
        if starved and len(self._usages) == WATCHED:
            rims = f"RIM {starved[0]} has" if len(starved) == 1 else f"RIMs {', '.join(map(str, starved))} have"
            self._say(
                "starved",
                f"{rims} starved: {steps}, active in less than {STARVED:.0%} of the steps of {WATCHED} rollouts; "
                "core_kwargs.balance=0.01 wakes them",
            )

    def _say(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said[what] = sentence
            log.info("note: %s", sentence)
