"""``rims-rl train``: train an agent, and leave a folder from which the run can be resumed, repeated and evaluated."""

from __future__ import annotations

import io
import shlex
import signal
import sys
import time
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import get_system_info
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.algorithms.ppo import describe_parameters
from rims_rl.agents.callbacks.callbacks import (
    Checkpoints,
    Evaluation,
    KeptPolicies,
    Logging,
    Monitoring,
    ProgressBar,
    Stopped,
)
from rims_rl.agents.callbacks.tensorboard import TensorBoardFile
from rims_rl.agents.policies.progressive import check_column, load_columns
from rims_rl.agents.policies.rims_policies import MlpRimsPolicy
from rims_rl.agents.saved.checkpoints import (
    capture,
    other_engine,
    read_checkpoint,
    restore,
    start_games_again,
    write_checkpoint,
)
from rims_rl.agents.saved.normalization import freeze_statistics, start_from_statistics, statistics_to_json
from rims_rl.agents.saved.policy_files import load_policy, save_policy
from rims_rl.common.errors import Diverged, EnvironmentFailed, UserError
from rims_rl.common.files import clear_leftovers, replacing, write_json
from rims_rl.config import zoo
from rims_rl.config.training_config import TrainConfig
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import OPTIONS, Resolved, action_set, resolve, resolve_saved
from rims_rl.runs.folder import Arguments, claim, lock, read_arguments, read_result, write_settings
from rims_rl.runs.provenance import provenance
from rims_rl.training.carry import EVERYTHING, Agent, carry_over, check_carry, freeze, parse_carry
from rims_rl.training.rl_zoo3_folder import write_rl_zoo3_folder

ALGORITHMS = {"ppo": RecurrentPPO, "a2c": RecurrentA2C}
LOG_INTERVALS = {"ppo": 1, "a2c": 100}  # in rollouts, as in Stable-Baselines3


def train(arguments: Arguments, config: Path | None, overrides: list[str], logdir: Path, trust: bool = False) -> Path:
    """Train, and return the folder of the run. Ctrl-C or SIGTERM saves, says how to go on, and exits."""
    if arguments.columns:
        overrides = [*overrides, f"policy_kwargs.columns={len(arguments.columns)}"]
    settings = zoo.load(arguments.env, arguments.algo, file=config, overrides=overrides).config
    return start(arguments, settings, logdir, trust)


def start(arguments: Arguments, settings: TrainConfig, logdir: Path, trust: bool = False) -> Path:
    """The same, with hyperparameters that have been read."""
    model, evaluation_envs = build(arguments, settings)
    if arguments.init_from is not None:
        _start_from(Path(arguments.init_from), arguments, model, trust)
    elif arguments.columns:
        _start_beside([Path(run) for run in arguments.columns], model)
    run = claim(logdir, arguments.algo, _resolve(arguments).name)
    with lock(run):
        _train(_Session(run, arguments, settings, model, evaluation_envs, None))
    return run


def resume(run: Path, n_timesteps: int | None) -> Path:
    """Go on with a run from its newest checkpoint, to the end it was meant to have or to ``n_timesteps``."""
    arguments, config = read_arguments(run)
    overrides = [] if n_timesteps is None else [f"n_timesteps={n_timesteps}"]
    settings = zoo.load_saved(config, arguments.algo, overrides)
    with lock(run):
        clear_leftovers(run)
        state = read_checkpoint(run / "checkpoints", report=lambda text: print(f"rims-rl: {text}", file=sys.stderr))
        steps = state["num_timesteps"]
        if steps >= settings.n_timesteps and (read_result(run).get("finished") or n_timesteps is not None):
            raise UserError(
                f"{run} has finished its {settings.n_timesteps:,} steps; to train it longer, give -n with more than "
                f"{steps}"
            )
        model, evaluation_envs = build(arguments, settings)
        if (difference := other_engine(model, state)) is not None:
            if arguments.exact_resume:
                raise UserError(
                    f"{run} wants to be resumed to the bit, but {difference}; go on where they are the same (the loops "
                    f"in C need a C compiler), or set exact_resume: false in {config.with_name('args.yml')}"
                )
            print(f"rims-rl: {difference}, so that the last bits will differ", file=sys.stderr)
        _train(_Session(run, arguments, settings, model, evaluation_envs, state))
    return run


def build(arguments: Arguments, settings: TrainConfig) -> tuple[RecurrentPPO, VecEnv]:
    """The model with its environments, and the environments for evaluations."""
    check_device(arguments.device)
    torch.set_num_threads(arguments.threads)
    env, seed, threads = _resolve(arguments), arguments.seed, arguments.threads
    envs = make_envs(env, settings.n_envs, seed, threads)
    evaluation_envs = make_envs(env, min(8, arguments.eval_episodes), seed, threads, clip_rewards=False)
    make, kwargs = ALGORITHMS[arguments.algo], settings.algorithm_kwargs()
    kwargs |= {"seed": seed, "device": arguments.device, "policy_kwargs": settings.policy_arguments()}
    try:
        if settings.normalize:
            envs = VecNormalize(envs)
            evaluation_envs = VecNormalize(evaluation_envs, training=False, norm_reward=False)
        model = make(settings.policy, envs, **kwargs)
    except ValueError as error:  # what only shows when the environment is known
        raise UserError(str(error)) from error
    model.set_logger(Logger(None, []))
    if arguments.carry is not None:
        carry, normalise = parse_carry(arguments.carry), model.get_vec_normalize_env()
        freeze(carry, _policy(model))
        if carry.encoder == "freeze" and normalise is not None:
            freeze_statistics(normalise)
    return model, evaluation_envs


def check_device(name: str) -> None:
    """A UserError if torch cannot compute there; Stable-Baselines3 would take the CPU without a word."""
    there = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "xpu": torch.xpu.device_count(),
        "mps": torch.mps.device_count(),
    }
    possible = ["auto", *(kind for kind, count in there.items() if count)]
    try:
        device = torch.device("cpu" if name == "auto" else name)
        fits = (device.index or 0) < there.get(device.type, 0)
    except RuntimeError:  # not a name that torch knows
        fits = False
    if not fits:
        raise UserError(f"there is no device {name!r} that torch can use here; give {' or '.join(possible)}")


def _resolve(arguments: Arguments) -> Resolved:
    return resolve(arguments.env, **{option: getattr(arguments, option) for option in OPTIONS})


def _policy(model: RecurrentPPO) -> MlpRimsPolicy:
    assert isinstance(model.policy, MlpRimsPolicy)
    return model.policy


def _start_from(path: Path, arguments: Arguments, model: RecurrentPPO, trust: bool) -> None:
    """Give ``model`` weights of a saved policy, by default all of them. Statistics of observations go with the
    encoder, which has learned to read them."""
    carry = parse_carry(arguments.carry or EVERYTHING)
    source, about = load_policy(path, trust=trust)
    normalise, statistics = model.get_vec_normalize_env(), about.get("normalisation")
    here = Agent(_policy(model), normalise is not None, action_set(_resolve(arguments)))
    there = Agent(source, statistics is not None, action_set(resolve_saved(about)))
    check_carry(carry, here, there, f"--init-from {path}")
    carry_over(carry, _policy(model), source)
    if carry.carries("encoder") and normalise is not None and statistics is not None:
        start_from_statistics(normalise, statistics)


def _start_beside(runs: list[Path], model: RecurrentPPO) -> None:
    """Make saved policies the frozen columns of a progressive network."""
    if model.get_vec_normalize_env() is not None:
        raise UserError("--column needs normalize=false: columns would read numbers that were normalised for others")
    sources = []
    for run in runs:
        source, about = load_policy(run)
        if about.get("normalisation") is not None:
            raise UserError(f"--column {run} was trained with normalize=true, and columns need normalize=false")
        check_column(_policy(model), source, f"--column {run}")
        sources.append(source)
    load_columns(_policy(model), sources)


def _train(session: _Session) -> None:
    """Train to the end, and say how it went and what comes next."""
    run, model = session.run, session.model
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{describe_parameters(model.policy)}\n{run}")
    go_on = f"rims-rl train --resume {shlex.quote(str(run))}"
    with _Signals(session, console) as signals:
        try:
            session.learn(console)
        except (Stopped, KeyboardInterrupt):
            session.write_result(finished=False)
            steps, newest = model.num_timesteps, session.checkpoints.newest or 0
            console.print(f"stopped after {steps:,} steps; to go on from the checkpoint at {newest:,}: {go_on}")
            raise SystemExit(128 + signals.first) from None
        except (EnvironmentFailed, Diverged, OSError) as error:
            raise UserError(_why_stopped(error, session, go_on)) from error
    console.print(f"trained for {model.num_timesteps:,} steps in {time.time() - session.begun:.0f} s: {run}")
    if standing := _against_paper(session.env.name, model):
        console.print(standing)
    console.print(f"next: rims-rl evaluate {run}   or: tensorboard --logdir {run}")


def _why_stopped(error: EnvironmentFailed | Diverged | OSError, session: _Session, go_on: str) -> str:
    """What ended training, and what to do about it. The traceback of an environment goes into the run's log."""
    run, steps, newest = session.run, session.model.num_timesteps, session.checkpoints.newest
    remedy = "start again" if newest is None else f"go on from the checkpoint at {newest:,} with {go_on}"
    if isinstance(error, Diverged):
        return (
            f"training diverged: after {steps:,} steps {error}; {run} holds the policy as it was after "
            f"{newest or 0:,}; try a smaller learning_rate than {session.settings.learning_rate}, or normalize=true"
        )
    if isinstance(error, OSError):
        reason = f"{error.strerror or error}, {error.filename or run}"
    elif error.__cause__ is None:
        reason = str(error)
    else:
        log = run / "log.txt"
        with log.open("a") as file:
            traceback.print_exception(error.__cause__, file=file)
        reason = f"{error}, see {log}"
    return f"training stopped after {steps:,} steps: {reason}; when that is mended, {remedy}"


class _Session:
    """A run in this process, from its beginning or from the ``state`` of a checkpoint."""

    def __init__(
        self,
        run: Path,
        arguments: Arguments,
        settings: TrainConfig,
        model: RecurrentPPO,
        evaluation_envs: VecEnv,
        state: dict[str, Any] | None,
    ) -> None:
        self.run, self.arguments, self.settings, self.model, self.state = run, arguments, settings, model, state
        self.env = _resolve(arguments)
        self.begun = time.time() - (state["seconds"] if state else 0)
        self.command = shlex.join(["rims-rl", *sys.argv[1:]])
        self.resumed_from = [*read_result(run).get("resumed_from", []), state["num_timesteps"]] if state else []
        self.policy_kwargs = settings.policy_arguments()
        self.evaluation = Evaluation(
            evaluation_envs,
            arguments.eval_freq,
            arguments.eval_episodes,
            self.env.deterministic,
            arguments.seed,
            run,
            self.policy_kwargs,
            self.about,
        )
        self.checkpoints = Checkpoints(
            self.save,
            arguments.checkpoint_freq,
            arguments.seed,
            arguments.exact_resume,
            state["num_timesteps"] if state else None,
        )
        self.kept = KeptPolicies(arguments.keep_policies_every, run / "policies", self.policy_kwargs, self.about)

    def learn(self, console: Console) -> None:
        """From where the run stands to its end."""
        run, state, model = self.run, self.state, self.model
        if state:
            self.restore(state)
        write_settings(run, self.env.name, self.arguments, self.settings.model_dump())
        with (run / "command.txt").open("a") as file:
            file.write(self.command + "\n")
        self.write_result(finished=False)
        told = {
            "env": self.env.name,
            "algo": self.arguments.algo,
            "seed": self.arguments.seed,
            **self.settings.model_dump(),
        }
        monitor_size, tensorboard_size = (state["monitor_size"], state["tensorboard_size"]) if state else (0, 0)
        with (
            closing(TensorBoardFile(run / "tensorboard", tensorboard_size, told)) as self.board,
            closing(Monitoring(run / "0.monitor.csv", monitor_size, self.env.id, self.begun)) as self.monitoring,
            closing(ProgressBar(self.settings.n_timesteps, console)) as progress,
        ):
            model.logger.output_formats.append(self.board)
            logging = Logging(LOG_INTERVALS[self.arguments.algo], console)
            model.learn(
                self.settings.n_timesteps - model.num_timesteps,
                CallbackList([progress, self.monitoring, self.evaluation, logging, self.kept, self.checkpoints]),
                log_interval=None,  # it would count from the beginning of this process; `logging` does not
                reset_num_timesteps=state is None,
            )
        _save_pickles(run, self.env.name, model)
        write_rl_zoo3_folder(run, self.env, model)
        self.write_result(finished=True)

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
        save_policy(policy, self.run, self.policy_kwargs, **self.about())
        write_checkpoint(self.run / "checkpoints", state)

    def about(self) -> dict[str, Any]:
        """What goes with the weights; statistics of observations change as training goes on."""
        normalise = self.model.get_vec_normalize_env()
        return {
            "env": self.arguments.env,
            "env_options": self.env.options,
            "algo": self.arguments.algo,
            "seed": self.arguments.seed,
            "steps": self.model.num_timesteps,
            "init_from": self.arguments.init_from and Path(self.arguments.init_from).name,
            "carry": self.arguments.carry,
            "columns": [Path(run).name for run in self.arguments.columns],
            "normalisation": None if normalise is None else statistics_to_json(normalise),
        }

    def write_result(self, finished: bool) -> None:
        """``run.json``."""
        told = {"command": self.command, **self.about(), "finished": finished, "resumed_from": self.resumed_from}
        system = get_system_info(print_info=False)[0]
        write_json(self.run / "run.json", {**told, "system": system, **provenance(self.begun)})


class _Signals:
    """Ctrl-C and SIGTERM stop training where a checkpoint can be written; a second one acts at once."""

    def __init__(self, session: _Session, console: Console) -> None:
        self._session, self._console = session, console
        self.first: int = signal.SIGINT

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self.__exit__()
        self.first = number
        self._session.checkpoints.stop = True
        self._console.print("stopping after this rollout and its update; once more to stop at once")


def _save_pickles(run: Path, name: str, model: RecurrentPPO) -> None:
    """For Stable-Baselines3's own tools; our commands never read these."""
    contents = io.BytesIO()  # torch's own writing to a full disk would not say what is wrong
    model.save(contents)
    with replacing(run / f"{name}.zip") as temporary:
        temporary.write_bytes(contents.getbuffer())
    if (normalise := model.get_vec_normalize_env()) is not None:
        with replacing(run / "vecnormalize.pkl") as temporary:
            normalise.save(str(temporary))


def _against_paper(game: str, model: RecurrentPPO) -> str | None:
    """Where the run stands in the paper's Atari table, if it has the game and the run has scores."""
    paper, scores = zoo.paper_scores().get(game), [episode["r"] for episode in model.ep_info_buffer or ()]
    if not paper or not scores:
        return None
    return (
        f"{game}: mean score of the last {len(scores)} episodes {np.mean(scores):,.0f} after {model.num_timesteps:,} "
        f"steps; paper after 40,000,000 steps: RIMs {paper['rims']:,.0f}, LSTM {paper['lstm']:,.0f}"
    )
