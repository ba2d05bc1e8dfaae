"""Everything that TensorBoard gets, to Weights & Biases."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.logger import KVWriter

from rims_rl.agents.callbacks.base import TrainingCallback
from rims_rl.common.errors import UserError

try:
    import wandb  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    raise UserError("WandbLogger needs wandb, which is not installed; run: pip install 'rims-rl[wandb]'") from None


class WandbLogger(TrainingCallback):
    """``--callback rims_rl.agents.callbacks.wandb_logger.WandbLogger:project=mine``

    Args:
        kwargs: of ``wandb.init``, such as ``project``, ``name``, ``group`` or ``mode``. The environment variable
            ``WANDB_MODE=offline`` keeps everything on this machine.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self._arguments = kwargs

    def _on_training_start(self) -> None:
        self._run = wandb.init(**{"config": self._settings(), **self._arguments})
        self._writer = _Writer(self._run)
        self.model.logger.output_formats.append(self._writer)

    def _on_training_end(self) -> None:
        self.model.logger.output_formats.remove(self._writer)
        self._run.finish()

    def _settings(self) -> dict[str, Any]:
        model: Any = self.model
        names = ("seed", "n_envs", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "ent_coef", "vf_coef")
        plain = {name: getattr(model, name) for name in (*names, "max_grad_norm", "sequence_length")}
        return plain | {
            "algo": type(model).__name__,
            "policy_kwargs": {k: str(v) for k, v in model.policy_kwargs.items()},
        }


class _Writer(KVWriter):
    """Numbers, after each rollout; pictures and histograms are TensorBoard's alone."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        numbers = {key: value for key, value in key_values.items() if isinstance(value, int | float)}
        if numbers:
            self._run.log({**numbers, "steps": step}, step=step)

    def close(self) -> None:
        pass
