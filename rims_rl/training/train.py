"""Train an agent, and leave a folder from which the run can be resumed, repeated and evaluated."""

from __future__ import annotations

import logging
import shlex
import signal
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_wrapper

from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.algorithms.ppo import describe_parameters
from rims_rl.agents.callbacks.saving import Stopped
from rims_rl.agents.policies.action_masks import has_masks
from rims_rl.agents.policies.progressive import check_column, load_columns
from rims_rl.agents.policies.rims_policies import MlpRimsPolicy
from rims_rl.agents.saved.checkpoints import other_engine, read_checkpoint
from rims_rl.agents.saved.normalization import freeze_statistics, start_from_statistics
from rims_rl.agents.saved.policy_files import load_policy
from rims_rl.common.errors import Diverged, EnvironmentFailed, UserError
from rims_rl.common.files import clear_leftovers
from rims_rl.common.freed_memory import keep_freed_memory
from rims_rl.common.signals import stop_at_signal
from rims_rl.config import zoo
from rims_rl.config.layers import read_mapping
from rims_rl.config.policy_choice import is_worth_saying
from rims_rl.config.training_config import TrainConfig
from rims_rl.core import engine_of
from rims_rl.envs.guard import Guarded
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import Resolved, action_set, resolve
from rims_rl.runs.environment import resolve_saved
from rims_rl.runs.folder import Arguments, check_own, claim, is_finished, lock, read_arguments
from rims_rl.training.carry import EVERYTHING, Agent, carry_over, check_carry, freeze, parse_carry
from rims_rl.training.options import ResumeOptions, TrainOptions, TrainResult
from rims_rl.training.own_callbacks import make_callbacks
from rims_rl.training.session import Session

__all__ = ["ResumeOptions", "TrainOptions", "TrainResult", "build", "resume", "start", "train"]

ALGORITHMS = {"ppo": RecurrentPPO, "a2c": RecurrentA2C}
LARGE_REWARD = 1e4  # from here on, values are hard to learn with any learning rate
log = logging.getLogger(__name__)


def train(options: TrainOptions) -> TrainResult:
    """Train a new agent. In the main thread, Ctrl-C or SIGTERM saves and returns what there is until then."""
    if options.carry is not None and options.init_from is None:
        raise UserError(f"`carry` {options.carry} says what to take over, and `init_from` from which run; give both")
    if options.columns and options.init_from is not None:
        raise UserError("`columns` and `init_from` are two ways to use what was learned; give one of them")
    callbacks = make_callbacks(options.callbacks)
    layers = [("`settings`", settings)] if (settings := options.all_settings()) else []
    env = resolve_arguments(options)
    config, sources = zoo.load(env, options.algo, file=options.config, layers=layers)
    if is_worth_saying(sources["policy"], config.policy):
        log.info("%s, so that %s reads them", sources["policy"], config.policy)
    return start(options.arguments(), config, env, options.logdir, options.trust, options.progress, callbacks)


def start(
    arguments: Arguments,
    settings: TrainConfig,
    env: Resolved,
    logdir: Path,
    trust: bool = False,
    progress: bool = False,
    callbacks: Sequence[BaseCallback] = (),
) -> TrainResult:
    """The same, with hyperparameters that have been read, the environment that was asked for, and callbacks of
    Stable-Baselines3 beside our own."""
    model, evaluation_envs = build(arguments, settings, env)
    assert model.env is not None
    if has_masks(model.env):
        log.info("%s says with action_masks() what is possible, and only that is done", env.id)
    if arguments.init_from is not None:
        _start_from(Path(arguments.init_from), arguments, env, model, trust)
    elif arguments.columns:
        _start_beside([Path(run) for run in arguments.columns], model, trust)
    run = claim(logdir, arguments.algo, env.name)
    with lock(run):
        return _train(Session(run, arguments, settings, env, model, evaluation_envs, None, callbacks), progress)


def resume(options: ResumeOptions, callbacks: Sequence[BaseCallback] = ()) -> TrainResult:
    """Go on with a run from its newest checkpoint."""
    run, n_timesteps = options.run, options.n_timesteps
    callbacks = [*make_callbacks(options.callbacks), *callbacks]
    arguments, config = read_arguments(run)
    check_own(run, arguments, read_mapping(config), options.trust)
    settings = zoo.load_saved(config, arguments.algo, {} if n_timesteps is None else {"n_timesteps": n_timesteps})
    with lock(run):
        clear_leftovers(run)
        state = read_checkpoint(run / "checkpoints")
        steps = state["num_timesteps"]
        if steps >= settings.n_timesteps and (is_finished(run) or n_timesteps is not None):
            asked = "" if n_timesteps is None else f", got {n_timesteps}"
            raise UserError(
                f"{run} has finished its {steps:,} steps; to train it longer, give `n_timesteps` with more than "
                f"{steps}{asked}"
            )
        env = resolve_arguments(arguments)
        model, evaluation_envs = build(arguments, settings, env)
        if (difference := other_engine(model, state)) is not None:
            if arguments.exact_resume:
                raise UserError(
                    f"{run} wants to be resumed to the bit, but {difference}; go on where they are the same (the loops "
                    f"in C need a C compiler), or set exact_resume: false in {config.with_name('args.yml')}"
                )
            log.warning("%s, so that the last bits will differ", difference)
        session = Session(run, arguments, settings, env, model, evaluation_envs, state, callbacks)
        return _train(session, options.progress)


def resolve_arguments(arguments: Arguments) -> Resolved:
    """The environment that a run was asked for."""
    return resolve(arguments.env, **arguments.given())


def build(arguments: Arguments, settings: TrainConfig, env: Resolved) -> tuple[RecurrentPPO, VecEnv | None]:
    """The model with its environments, and the environments for evaluations, if there will be any."""
    check_device(arguments.device)
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    seed, threads = arguments.seed, arguments.threads
    envs = make_envs(env, settings.n_envs, seed, threads)
    evaluation_envs: VecEnv | None = None
    if arguments.eval_freq:
        evaluation_envs = make_envs(env, min(8, arguments.eval_episodes), seed, threads, clip_rewards=False)
    make, kwargs = ALGORITHMS[arguments.algo], settings.algorithm_kwargs()
    kwargs |= {"seed": seed, "device": arguments.device, "policy_kwargs": settings.policy_arguments()}
    try:
        if settings.normalize:
            envs = VecNormalize(envs)
            if evaluation_envs is not None:
                evaluation_envs = VecNormalize(evaluation_envs, training=False, norm_reward=False)
        model = make(settings.policy, envs, **kwargs)
    except ValueError as error:  # what only shows when the environment is known
        raise UserError(str(error)) from error
    model.set_logger(Logger(None, []))
    if arguments.carry is not None:
        carry, normalize = parse_carry(arguments.carry), model.get_vec_normalize_env()
        freeze(carry, _policy(model))
        if carry.encoder == "freeze" and normalize is not None:
            freeze_statistics(normalize)
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


def _policy(model: RecurrentPPO) -> MlpRimsPolicy:
    assert isinstance(model.policy, MlpRimsPolicy)
    return model.policy


def _start_from(path: Path, arguments: Arguments, env: Resolved, model: RecurrentPPO, trust: bool) -> None:
    """Give ``model`` weights of a saved policy, by default all of them. Statistics of observations go with the
    encoder, which has learned to read them."""
    carry = parse_carry(arguments.carry or EVERYTHING)
    source, description = load_policy(path, trust=trust)
    normalize, statistics = model.get_vec_normalize_env(), description.normalization
    here = Agent(_policy(model), normalize is not None, action_set(env))
    there = Agent(source, statistics is not None, action_set(resolve_saved(description)))
    check_carry(carry, here, there, f"`init_from` {path}")
    carry_over(carry, _policy(model), source)
    if carry.carries("encoder") and normalize is not None and statistics is not None:
        start_from_statistics(normalize, statistics)


def _start_beside(runs: list[Path], model: RecurrentPPO, trust: bool) -> None:
    """Make saved policies the frozen columns of a progressive network."""
    if model.get_vec_normalize_env() is not None:
        raise UserError("`columns` needs normalize=false: columns would read numbers that were normalized for others")
    sources = []
    for run in runs:
        source, description = load_policy(run, trust=trust)
        if description.normalization is not None:
            raise UserError(f"`columns` {run} was trained with normalize=true, and columns need normalize=false")
        check_column(_policy(model), source, f"`columns` {run}")
        sources.append(source)
    load_columns(_policy(model), sources)


def _train(session: Session, progress: bool) -> TrainResult:
    """Train to the end, or until a signal."""
    model, checkpoints = session.model, session.checkpoints
    log.info("%s\n%s", describe_parameters(model.policy), session.run)
    if "readable" in engine_of(model.policy):
        log.info(
            "its RIMs run in the readable engine%s, which takes many times longer than the loops in C: shorter "
            "sequences help PPO, --set sequence_length=16; docs/explanation/mechanism.md says what the loops know",
            "" if model.device.type == "cpu" else f" on {model.device} (on a CPU they may not: --device cpu)",
        )
    _announce_steps(session)
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        checkpoints.stop = True
        log.info("stopping after this rollout and its update; once more to stop at once")

    with stop_at_signal(stop):
        try:
            session.learn(progress)
        except (Stopped, KeyboardInterrupt):
            session.write_result(finished=False)
            signals.append(signal.SIGINT)
        except (EnvironmentFailed, Diverged, OSError) as error:
            raise UserError(_why_stopped(error, session)) from error
        else:
            signals.clear()  # one that came too late
    return TrainResult(
        session.run,
        session.env.name,
        model.num_timesteps,
        time.time() - session.begun,
        [float(episode["r"]) for episode in model.ep_info_buffer or ()],
        checkpoints.newest,
        signals[0] if signals else None,
        tuple(session.logging.notes),
    )


def _announce_steps(session: Session) -> None:
    """Say so if it will be more than what was asked for."""
    model, asked, last = session.model, session.settings.n_timesteps, session.last_step()
    if last > 1.01 * asked:
        log.info(
            "it will be %s steps instead of %s: whole rollouts of n_steps * n_envs = %s * %s = %s",
            *(f"{number:,}" for number in (last, asked, model.n_steps, model.n_envs, model.n_steps * model.n_envs)),
        )


def _against_divergence(session: Session) -> str:
    """What may help: not always smaller steps."""
    guarded = unwrap_vec_wrapper(session.model.env, Guarded)  # type: ignore[arg-type]
    if guarded is not None and guarded.largest_reward > LARGE_REWARD:
        largest = f"{guarded.largest_reward:.1g}"
        return f"rewards are as large as {largest}: let the environment give smaller ones, or try normalize=true"
    return f"try a smaller learning_rate than {session.settings.learning_rate}, or normalize=true"


def _why_stopped(error: EnvironmentFailed | Diverged | OSError, session: Session) -> str:
    """What ended training, and what to do about it. The traceback of an environment goes into the run's log."""
    run, steps, newest = session.run, session.model.num_timesteps, session.checkpoints.newest
    again = f"`resume` {shlex.quote(str(run))}"
    remedy = "start again" if newest is None else f"go on from the checkpoint at {newest:,} with {again}"
    if isinstance(error, Diverged):
        return (
            f"training diverged: after {steps:,} steps {error}; {run} holds the policy as it was after "
            f"{newest or 0:,}; {_against_divergence(session)}"
        )
    if isinstance(error, OSError):
        reason = f"{error.strerror or error}, {error.filename or run}"
    elif error.__cause__ is None:
        reason = str(error)
    else:
        log_file = run / "log.txt"
        with log_file.open("a") as file:
            traceback.print_exception(error.__cause__, file=file)
        reason = f"{error}, see {log_file}"
    return f"training stopped after {steps:,} steps: {reason}; when that is mended, {remedy}"
