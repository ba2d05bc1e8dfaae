"""``rims-rl train``."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import CORES, Algo, Backend, Config, Difficulty, GameMode, Seed, Set, Threads, Trust, was_given
from rims_rl.common.errors import UserError


@app.command("train")
def _train(
    context: typer.Context,
    env: Annotated[
        str | None, typer.Option(help="An Atari game, such as DemonAttack, PickupKnown, or any Gymnasium id.")
    ] = None,
    algo: Algo = "ppo",
    core: Annotated[str | None, typer.Option(help="rims, lstm, gru, none, rmc, ntm, dnc, entnet, or your own.")] = None,
    n_timesteps: Annotated[int | None, typer.Option("--n-timesteps", "-n", min=1, help="Steps to train for.")] = None,
    n_envs: Annotated[int | None, typer.Option(min=1, help="Environments side by side.")] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    threads: Threads = CORES,
    config: Config = None,
    set_: Set = None,
    logdir: Annotated[Path, typer.Option(help="Where the folder of the run is made.")] = Path("logs"),
    eval_freq: Annotated[int, typer.Option(min=0, help="Evaluate every so many steps; 0: never.")] = 250_000,
    eval_episodes: Annotated[int, typer.Option(min=1, help="Episodes of each evaluation.")] = 10,
    backend: Backend = None,
    game_mode: GameMode = None,
    difficulty: Difficulty = None,
    observation: Annotated[str | None, typer.Option(help="Of MiniGrid and BabyAI: symbolic (default) or rgb.")] = None,
    distractors: Annotated[
        str | None, typer.Option(help="Over the frames of Atari games: known; docs/distractors.md has others.")
    ] = None,
    checkpoint_freq: Annotated[
        int, typer.Option(min=1, help="Steps between checkpoints: what a crash may cost. A few minutes on Atari.")
    ] = 100_000,
    exact_resume: Annotated[
        bool,
        typer.Option("--exact-resume", help="Start all games again at each checkpoint, so that resuming is exact."),
    ] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start with its weights: a run's folder or a .safetensors file.")
    ] = None,
    carry: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS",
            help="What to take over from there, such as encoder=finetune,core=freeze,rims=0,2. Default: everything.",
        ),
    ] = None,
    column: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A frozen column of a progressive network; may be given several times."),
    ] = None,
    keep_policies_every: Annotated[
        int, typer.Option(min=0, help="Keep the policy in RUN/policies every so many steps; 0: never.")
    ] = 0,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with this folder. Takes only -n besides.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Train an agent."""
    from rims_rl.runs.folder import Arguments
    from rims_rl.training import train

    if resume is not None:
        given = [p.opts[0] for p in context.command.params if p.name and was_given(context, p.name)]
        if others := [flag for flag in given if flag not in ("--resume", "--n-timesteps")]:
            raise UserError(f"--resume takes its settings from {resume}, and only -n besides; leave out {others[0]}")
        train.resume(resume, n_timesteps)
        return
    if env is None:
        raise UserError("what to train on is missing: give --env, such as --env DemonAttack, or --resume RUN")
    if carry is not None and init_from is None:
        raise UserError(f"--carry {carry} says what to take over, and --init-from RUN from where; give that too")
    if column and init_from is not None:
        raise UserError("--column and --init-from are two ways to use what was learned; give one of them")
    flags = {"core": core, "n_timesteps": n_timesteps, "n_envs": n_envs}
    overrides = (set_ or []) + [f"{key}={value}" for key, value in flags.items() if value is not None]
    arguments = Arguments(
        env=env,
        backend=backend,
        game_mode=game_mode,
        difficulty=difficulty,
        observation=observation,
        distractors=distractors,
        algo=algo,
        seed=seed,
        device=device,
        threads=threads,
        eval_freq=eval_freq,
        eval_episodes=eval_episodes,
        checkpoint_freq=checkpoint_freq,
        exact_resume=exact_resume,
        init_from=None if init_from is None else str(init_from),
        carry=carry,
        columns=[str(run) for run in column or []],
        keep_policies_every=keep_policies_every,
    )
    train.train(arguments, config, overrides, logdir, trust)
