"""``rims-rl train``."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import (
    Algo,
    AllThreads,
    Backend,
    Config,
    Difficulty,
    EnvKwargs,
    EnvWrapper,
    FrameStack,
    GameMode,
    GymPackages,
    Seed,
    Settings,
    Trust,
    VecEnv,
    env_options,
    local_run,
    read_steps,
    was_given,
)
from rims_rl.common.cores import THREADS
from rims_rl.common.errors import UserError
from rims_rl.common.words import count_of

if TYPE_CHECKING:
    from rims_rl.training.options import TrainResult


@app.command("train")
def _train(
    context: typer.Context,
    env: Annotated[
        str | None,
        typer.Option(help="DemonAttack, PickupKnown, any Gymnasium id, or your own: my_module:My/Env-v0."),
    ] = None,
    algo: Algo = "ppo",
    core: Annotated[
        str | None, typer.Option(help="rims, scoff, brims, lstm, gru, none, or another: reference/cores.md.")
    ] = None,
    n_timesteps: Annotated[
        int | None,
        typer.Option("--n-timesteps", "-n", parser=read_steps, metavar="STEPS", help="To train for, such as 1e6."),
    ] = None,
    n_envs: Annotated[int | None, typer.Option(min=1, help="Environments side by side.")] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    threads: AllThreads = THREADS,
    config: Config = None,
    settings: Settings = None,
    logdir: Annotated[Path, typer.Option(help="Where the folder of the run is made.")] = Path("logs"),
    eval_freq: Annotated[
        int, typer.Option(parser=read_steps, metavar="STEPS", help="Evaluate every so many; 0: never.")
    ] = 250_000,
    eval_episodes: Annotated[int, typer.Option(min=1, help="Episodes of each evaluation.")] = 10,
    backend: Backend = None,
    game_mode: GameMode = None,
    difficulty: Difficulty = None,
    observation: Annotated[str | None, typer.Option(help="Of MiniGrid and BabyAI: symbolic (default) or rgb.")] = None,
    distractors: Annotated[
        str | None, typer.Option(help="Over the frames of Atari games: known; how-to/distractors.md has others.")
    ] = None,
    gym_packages: GymPackages = None,
    env_kwargs: EnvKwargs = None,
    env_wrapper: EnvWrapper = None,
    frame_stack: FrameStack = None,
    vec_env: VecEnv = None,
    checkpoint_freq: Annotated[
        int,
        typer.Option(
            parser=read_steps, metavar="STEPS", help="Between checkpoints: what a crash may cost. Minutes on Atari."
        ),
    ] = 100_000,
    exact_resume: Annotated[
        bool,
        typer.Option("--exact-resume", help="Start all games again at each checkpoint, so that resuming is exact."),
    ] = False,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Start with its weights: a run's folder, a .safetensors file, zoo:NAME, hf:owner/name."
        ),
    ] = None,
    carry: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS",
            help="What to take over from there, such as core=freeze; how-to/transfer.md. Default: everything.",
        ),
    ] = None,
    columns: Annotated[
        list[Path] | None,
        typer.Option(
            "--column", metavar="RUN", help="A frozen column of a progressive network; may be given several times."
        ),
    ] = None,
    keep_policies_every: Annotated[
        int,
        typer.Option(
            parser=read_steps, metavar="STEPS", help="Keep the policy in RUN/policies every so many; 0: never."
        ),
    ] = 0,
    callbacks: Annotated[
        list[str] | None,
        typer.Option(
            "--callback",
            metavar="PATH[:KEY=VALUE,...]",
            help="A callback of Stable-Baselines3, by its dotted path; may be given several times.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with this folder. Takes only -n, --callback and --trust besides."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Train an agent."""
    from rims_rl.config.layers import parse_overrides
    from rims_rl.training import train

    if resume is not None:
        given = [p.opts[0] for p in context.command.params if p.name and was_given(context, p.name)]
        allowed = ("--resume", "--n-timesteps", "--callback", "--trust")
        if others := [flag for flag in given if flag not in allowed]:
            raise UserError(f"--resume takes its settings from {resume}, and only -n besides; leave out {others[0]}")
        options = train.ResumeOptions(
            run=resume, n_timesteps=n_timesteps, callbacks=callbacks or [], trust=trust, progress=True
        )
        print_training(train.resume(options))
        return
    if env is None:
        raise UserError("what to train on is missing: give --env, such as --env DemonAttack, or --resume RUN")
    new = train.TrainOptions(
        env=env,
        backend=backend,
        game_mode=game_mode,
        difficulty=difficulty,
        observation=observation,
        distractors=distractors,
        **env_options(gym_packages, env_kwargs, env_wrapper, frame_stack, vec_env),
        algo=algo,
        seed=seed,
        device=device,
        threads=threads,
        eval_freq=eval_freq,
        eval_episodes=eval_episodes,
        checkpoint_freq=checkpoint_freq,
        exact_resume=exact_resume,
        init_from=init_from and local_run(init_from),
        carry=carry,
        columns=[local_run(column) for column in columns or []],
        keep_policies_every=keep_policies_every,
        callbacks=callbacks or [],
        core=core,
        n_timesteps=n_timesteps,
        n_envs=n_envs,
        config=config,
        settings=parse_overrides(settings or []),
        logdir=logdir,
        trust=trust,
        progress=True,
    )
    print_training(train.train(new))


def print_training(result: "TrainResult") -> None:
    """Say how it went and what comes next; training that a signal stopped ends the process as that signal does."""
    from rich.console import Console

    console, run = Console(highlight=False, markup=False, soft_wrap=True), result.folder
    if result.stopped_by is not None:
        go_on = f"rims-rl train --resume {shlex.quote(str(run))}"
        console.print(
            f"stopped after {result.steps:,} steps; to go on from the checkpoint at {result.checkpoint or 0:,}: {go_on}"
        )
        raise SystemExit(128 + result.stopped_by)
    console.print(f"trained for {result.steps:,} steps in {result.seconds:.0f} s: {run}")
    if standing := _against_paper(result):
        console.print(standing)
    console.print(f"next: rims-rl evaluate {run}   or: tensorboard --logdir {run}")


def _against_paper(result: "TrainResult") -> str | None:
    """Where the run stands in the paper's Atari table, if it has the game and the run has scores."""
    from statistics import fmean

    from rims_rl.config.zoo import paper_scores

    paper, scores = paper_scores().get(result.env), result.scores
    if not paper or not scores:
        return None
    return (
        f"{result.env}: mean score of the last {count_of(len(scores), 'episode')} {fmean(scores):,.0f} after "
        f"{result.steps:,} steps; paper after 40,000,000 steps: RIMs {paper['rims']:,.0f}, LSTM {paper['lstm']:,.0f}"
    )
