"""What the callbacks of training have in common.

What happens every so many steps follows from the number of steps alone, so that it is the same in a resumed run.
"""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback

from rims_rl.agents.algorithms.ppo import RecurrentPPO


class TrainingCallback(BaseCallback):
    """Does nothing at each step, unless a subclass does."""

    model: RecurrentPPO

    def _on_step(self) -> bool:
        return True

    def on_evaluation(self, steps: int, mean: float) -> None:
        """After each evaluation."""


def rollout_size(model: RecurrentPPO) -> int:
    return model.n_steps * model.n_envs


def due(model: RecurrentPPO, freq: int) -> bool:
    """Whether the last rollout passed a multiple of ``freq`` steps; also true before the first."""
    steps = model.num_timesteps
    return freq > 0 and steps // freq > (steps - rollout_size(model)) // freq
