"""``rims-rl evaluate``, ``compare`` and ``report``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import (
    AllThreads,
    Backend,
    Deterministic,
    Difficulty,
    EnvKwargs,
    EnvWrapper,
    Force,
    FrameStack,
    GameMode,
    GymPackages,
    Seed,
    Trust,
    VecEnv,
    env_options,
    local_run,
    read_rims,
    was_given,
)
from rims_rl.common.cores import THREADS
from rims_rl.common.errors import UserError

ENV_OPTIONS = ("gym_packages", "env_kwargs", "env_wrapper", "frame_stack", "vec_env")


@app.command("evaluate")
def _evaluate(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folder of a run, its folder best, a .safetensors file, zoo:NAME or hf:owner/name; with --random, "
            "an environment; with --variants, one or several.",
        ),
    ],
    variants: Annotated[
        str | None,
        typer.Option(help="Variants of the environment to test in, such as known,novel-colour, or all of them: all."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 100,
    deterministic: Deterministic = None,
    seed: Seed = 0,
    n_envs: Annotated[int, typer.Option(min=1, help="Environments side by side.")] = 8,
    threads: AllThreads = THREADS,
    out: Annotated[Path | None, typer.Option(help="JSON file to write. Default: in the run.")] = None,
    random: Annotated[bool, typer.Option("--random", help="Draw actions at random in the environment RUN.")] = False,
    drop: Annotated[
        str | None,
        typer.Option(metavar="RIMS", help="Take these RIMs out, such as 2,3; each: every one in turn, and none."),
    ] = None,
    force: Force = None,
    backend: Backend = None,
    game_mode: GameMode = None,
    difficulty: Difficulty = None,
    gym_packages: GymPackages = None,
    env_kwargs: EnvKwargs = None,
    env_wrapper: EnvWrapper = None,
    frame_stack: FrameStack = None,
    vec_env: VecEnv = None,
    trust: Trust = False,
) -> None:
    """Play a trained agent and say how well it does; also where it was not trained, or without some of its RIMs."""
    from rims_rl.cli.evaluation_tables import print_each_drop, print_evaluation, print_variants
    from rims_rl.evaluation.options import EvaluateOptions, VariantsOptions

    runs = [local_run(run) for run in runs]
    common: dict[str, Any] = {
        "episodes": episodes,
        "deterministic": deterministic,
        "seed": seed,
        "n_envs": n_envs,
        "threads": threads,
        "out": out,
        "trust": trust,
        "progress": True,
    }
    if variants is not None:
        from rims_rl.evaluation.evaluate_variants import evaluate_variants

        others = ("random", "drop", "force", "backend", "game_mode", "difficulty", *ENV_OPTIONS)
        if given := [key.replace("_", "-") for key in others if was_given(context, key)]:
            raise UserError(f"--variants plays runs as they were trained, but for the variant; leave out --{given[0]}")
        names = [name.strip() for name in variants.split(",")]
        print_variants(evaluate_variants(VariantsOptions(runs=runs, variants=names, **common)))
        return
    if len(runs) > 1:
        raise UserError(f"several runs are compared in variants, so give --variants, or leave out {runs[1]}")
    options = EvaluateOptions(
        run=runs[0],
        random=random,
        drop=() if drop == "each" else read_rims("--drop", drop),
        force=read_rims("--force", force),
        backend=backend,
        game_mode=game_mode,
        difficulty=difficulty,
        **env_options(gym_packages, env_kwargs, env_wrapper, frame_stack, vec_env),
        **common,
    )
    if drop == "each":
        from rims_rl.evaluation.evaluate_drop import evaluate_each

        print_each_drop(evaluate_each(options))
        return
    from rims_rl.evaluation.evaluate import evaluate

    print_evaluation(evaluate(options))


@app.command("compare")
def _compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs, ours or rl_zoo3's, or monitor files of Stable-Baselines3.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="JSON file to write, with a PNG beside it.")] = Path("comparison.json"),
) -> None:
    """Compare trainings by environment, core and settings, over seeds: curves, scores with intervals, wall time."""
    from rims_rl.cli.evaluation_tables import print_training_comparison
    from rims_rl.evaluation.compare_training import compare_training
    from rims_rl.evaluation.options import CompareOptions

    print_training_comparison(compare_training(CompareOptions(runs=runs, out=out)))


@app.command("report")
def _report(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    baselines: Annotated[
        list[Path] | None,
        typer.Option("--baseline", help="JSON of rims-rl evaluate to compare with; may be given several times."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write, with a PNG beside it. Default: in RUN.")] = None,
) -> None:
    """Gather what came out of a run: one JSON file, one picture."""
    from rims_rl.cli.evaluation_tables import print_report
    from rims_rl.evaluation.options import ReportOptions
    from rims_rl.evaluation.run_report import report

    print_report(report(ReportOptions(run=run, baselines=baselines or [], out=out)))
