"""One run in this process: what is trained, what is called meanwhile, and what it leaves in its folder."""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.utils import get_system_info
from stable_baselines3.common.vec_env import VecEnv

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.callbacks.base import TrainingCallback
from rims_rl.agents.callbacks.evaluation import Evaluation
from rims_rl.agents.callbacks.log_writing import Logging
from rims_rl.agents.callbacks.monitoring import Monitoring
from rims_rl.agents.callbacks.progress_bar import ProgressBar
from rims_rl.agents.callbacks.saving import Checkpoints, KeptPolicies
from rims_rl.agents.callbacks.tensorboard import TensorBoardFile
from rims_rl.agents.saved.checkpoints import capture, restore, start_games_again, write_checkpoint
from rims_rl.agents.saved.description import Description
from rims_rl.agents.saved.normalization import statistics_of
from rims_rl.agents.saved.policy_files import describe_policy, save_policy
from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.config.training_config import TrainConfig
from rims_rl.envs.names import Resolved
from rims_rl.runs.folder import Arguments, read_result, write_result, write_settings
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import RunResult
from rims_rl.training.rl_zoo3_folder import write_rl_zoo3_folder

LOG_INTERVALS = {"ppo": 1, "a2c": 100}  # in rollouts, as in Stable-Baselines3


class Session:
    """A run in this process, from its beginning or from the ``state`` of a checkpoint."""

    def __init__(
        self,
        run: Path,
        arguments: Arguments,
        settings: TrainConfig,
        env: Resolved,
        model: RecurrentPPO,
        evaluation_envs: VecEnv | None,
        state: dict[str, Any] | None,
        callbacks: Sequence[BaseCallback] = (),
    ) -> None:
        self.callbacks = callbacks  # more of them, after our own
        self.run, self.arguments, self.settings, self.model, self.state = run, arguments, settings, model, state
        self.env = env
        self.begun = time.time() - (state["seconds"] if state else 0)
        self.command = shlex.join([*(Path(program).name for program in sys.argv[:1]), *sys.argv[1:]])
        before = read_result(run)
        self.resumed_from = [*(before.resumed_from if before else []), state["num_timesteps"]] if state else []
        self.evaluation = Evaluation(
            evaluation_envs,
            arguments.eval_freq,
            arguments.eval_episodes,
            self.env.deterministic,
            arguments.seed,
            run,
            self.describe,
        )
        self.evaluation.listeners += [each for each in callbacks if isinstance(each, TrainingCallback)]
        self.checkpoints = Checkpoints(
            self.save,
            arguments.checkpoint_freq,
            arguments.seed,
            arguments.exact_resume,
            state["num_timesteps"] if state else None,
        )
        self.kept = KeptPolicies(arguments.keep_policies_every, run / "policies", self.describe)
        self.logging = Logging(LOG_INTERVALS[arguments.algo])

    def learn(self, progress: bool) -> None:
        """From where the run stands to its end."""
        run, state, model = self.run, self.state, self.model
        if state:
            self.restore(state)
        write_settings(run, self.env.name, self.arguments, self.settings.model_dump())
        with (run / "command.txt").open("a") as file:
            file.write(self.command + "\n")
        self.write_result(finished=False)
        hyperparameters = {
            "env": self.env.name,
            "algo": self.arguments.algo,
            "seed": self.arguments.seed,
            **self.settings.model_dump(),
        }
        monitor_size, tensorboard_size = (state["monitor_size"], state["tensorboard_size"]) if state else (0, 0)
        with (
            closing(TensorBoardFile(run / "tensorboard", tensorboard_size, hyperparameters)) as self.board,
            closing(Monitoring(run / "0.monitor.csv", monitor_size, self.env.id, self.begun)) as self.monitoring,
            closing(ProgressBar(self.last_step(), progress)) as bar,
        ):
            model.logger.output_formats.append(self.board)
            ours = [bar, self.monitoring, self.evaluation, self.logging, self.kept, self.checkpoints]
            model.learn(
                self.settings.n_timesteps - model.num_timesteps,
                CallbackList([*ours, *self.callbacks]),
                log_interval=None,  # it would count from the beginning of this process; `logging` does not
                reset_num_timesteps=state is None,
            )
        _save_pickles(run, self.env.name, model)
        write_rl_zoo3_folder(run, self.env, model)
        self.write_result(finished=True)

    def last_step(self) -> int:
        """Where training ends: it goes by whole rollouts, which may be much more than what was asked for."""
        asked = self.settings.n_timesteps
        left = asked - (self.state["num_timesteps"] if self.state else 0)
        return asked + -left % (self.model.n_steps * self.model.n_envs)

    def restore(self, state: dict[str, Any]) -> None:
        try:
            restore(self.model, state)
            self.evaluation.resume(state["evaluations"])
        except Exception as error:  # of what a checkpoint may hold instead of what it should, there is no end
            raise UserError(
                f"the checkpoint at {self.checkpoints.newest} steps of {self.run} does not fit its config.yml: "
                f"{(str(error) or type(error).__name__).splitlines()[0]}"
            ) from error
        start_games_again(self.model, self.arguments.seed)

    def save(self) -> None:
        """A checkpoint, and the policy for those who only want to play it."""
        policy: Any = self.model.policy
        state = capture(self.model) | {
            "evaluations": self.evaluation.history,
            "monitor_size": self.monitoring.size,
            "tensorboard_size": self.board.size,
            "seconds": time.time() - self.begun,
        }
        save_policy(policy, self.run, self.describe())
        write_checkpoint(self.run / "checkpoints", state)

    def describe(self) -> Description:
        """The policy as it is now."""
        policy: Any = self.model.policy
        return describe_policy(policy, self.settings.policy_arguments(), **self.origin())

    def origin(self) -> dict[str, Any]:
        """Where the policy comes from; statistics of observations change as training goes on."""
        normalize = self.model.get_vec_normalize_env()
        return {
            "env": self.arguments.env,
            "env_options": self.env.options,
            "algo": self.arguments.algo,
            "seed": self.arguments.seed,
            "steps": self.model.num_timesteps,
            "init_from": self.arguments.init_from and Path(self.arguments.init_from).name,
            "carry": self.arguments.carry,
            "columns": [Path(run).name for run in self.arguments.columns],
            "normalization": None if normalize is None else statistics_of(normalize).model_dump(),
        }

    def write_result(self, finished: bool) -> None:
        """``run.json``."""
        result = RunResult(
            command=self.command,
            **self.origin(),
            finished=finished,
            resumed_from=self.resumed_from,
            system=get_system_info(print_info=False)[0],
            **provenance(self.begun),
        )
        write_result(self.run, result)


def _save_pickles(run: Path, name: str, model: RecurrentPPO) -> None:
    """For Stable-Baselines3's own tools; our commands never read these."""
    contents = io.BytesIO()  # torch's own writing to a full disk would not say what is wrong
    model.save(contents)
    with replacing(run / f"{name}.zip") as temporary:
        temporary.write_bytes(contents.getbuffer())
    if (normalize := model.get_vec_normalize_env()) is not None:
        with replacing(run / "vecnormalize.pkl") as temporary:
            normalize.save(str(temporary))
