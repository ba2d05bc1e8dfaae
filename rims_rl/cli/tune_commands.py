"""``rims-rl tune``."""

import shlex
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.job_options import Engine, Gpus, Jobs, JobThreads, RayAddress, run_options
from rims_rl.cli.options import (
    Algo,
    Config,
    EnvKwargs,
    EnvWrapper,
    FrameStack,
    GymPackages,
    Seed,
    Settings,
    VecEnv,
    env_options,
    read_steps,
)

if TYPE_CHECKING:
    from rims_rl.tuning.study import Found


@app.command("tune")
def _tune(
    env: Annotated[str, typer.Option(help="As for rims-rl train.")],
    core: Annotated[
        list[str] | None, typer.Option(help="May be given several times; each gets all trials. Default: rims-robust.")
    ] = None,
    algo: Algo = "ppo",
    trials: Annotated[int, typer.Option(min=1, help="Of each core, those of before among them.")] = 50,
    n_timesteps: Annotated[
        int | None,
        typer.Option(
            "--n-timesteps", "-n", parser=read_steps, metavar="STEPS", help="Of each trial. Default: the zoo's."
        ),
    ] = None,
    n_envs: Annotated[int | None, typer.Option(min=1, help="Environments side by side.")] = None,
    gym_packages: GymPackages = None,
    env_kwargs: EnvKwargs = None,
    env_wrapper: EnvWrapper = None,
    frame_stack: FrameStack = None,
    vec_env: VecEnv = None,
    space: Annotated[
        Path | None, typer.Option(help="YAML file of what to try. Default: search_spaces.yml of the zoo.")
    ] = None,
    sampler: Annotated[str, typer.Option(help="tpe or random.")] = "tpe",
    pruner: Annotated[str, typer.Option(help="Ends bad trials early: median, halving, hyperband or none.")] = "median",
    evaluations: Annotated[int, typer.Option(min=1, help="Of each trial; the last is its score.")] = 10,
    eval_episodes: Annotated[int, typer.Option(min=1, help="Episodes of each evaluation.")] = 10,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Database of Optuna. Default: a file in the search's folder.")
    ] = None,
    seed: Seed = 0,
    config: Config = None,
    settings: Settings = None,
    name: Annotated[str | None, typer.Option(help="Of the folder LOGDIR/tune/NAME. Default: ENV_ALGO.")] = None,
    logdir: Annotated[Path, typer.Option(help="Where the folder of the search is made.")] = Path("logs"),
    jobs: Jobs = None,
    threads: JobThreads = 1,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
) -> None:
    """Search for hyperparameters with Optuna; after a crash or Ctrl-C, the same command goes on."""
    from rims_rl.cli.job_display import Display
    from rims_rl.common.errors import UserError
    from rims_rl.config.layers import parse_overrides
    from rims_rl.jobs.run import run_jobs

    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError("tune needs Optuna, which is not installed; run: pip install 'rims-rl[tune]'") from None
    from rims_rl.tuning.options import TuneOptions
    from rims_rl.tuning.study import plan_search, write_found

    run = run_options(jobs, threads, engine, ray_address, gpus)
    options = TuneOptions(
        env=env,
        cores=tuple(core or ["rims-robust"]),
        algo=algo,
        trials=trials,
        n_timesteps=n_timesteps,
        n_envs=n_envs,
        **env_options(gym_packages, env_kwargs, env_wrapper, frame_stack, vec_env),
        space=space,
        sampler=sampler,  # type: ignore[arg-type]  # checked there
        pruner=pruner,  # type: ignore[arg-type]
        evaluations=evaluations,
        eval_episodes=eval_episodes,
        storage=storage,
        seed=seed,
        config=config,
        settings=parse_overrides(settings or []),
        name=name,
        logdir=logdir,
    )
    experiment = plan_search(options)
    display = Display(experiment)
    try:
        display.end(run_jobs(experiment, run, display))
    finally:  # what there is until now, also when something is left to do
        given = {"--gym-packages": gym_packages, "--env-kwargs": env_kwargs, "--env-wrapper": env_wrapper}
        more = [(flag, value) for flag, values in given.items() for value in values or ()]
        more += [("--frame-stack", str(frame_stack))] if frame_stack else []
        more += [("--vec-env", vec_env)] if vec_env else []
        more += [("--algo", algo)] if algo != "ppo" else []
        _print_found(write_found(experiment), env, algo, shlex.join(chain(("--env", env), *more)))


def _print_found(found: "list[Found]", env: str, algo: str, options: str) -> None:
    """What was found, and how to train with it."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table("core", "finished", "ended early", "best score", "trial", "matters most", title=f"{env}, {algo}")
    for one in found:
        score, trial = (f"{one.best['value']:.2f}", str(one.best["number"])) if one.best else ("-", "-")
        most = ", ".join(f"{key} {share:.0%}" for key, share in list(one.importance.items())[:3])
        table.add_row(one.core, str(one.states["complete"]), str(one.states["pruned"]), score, trial, most)
    console.print(table)
    for one in found:
        if one.best is not None:
            console.print(f"rims-rl train {options} --config {one.folder / 'best.yml'}", soft_wrap=True)
