"""``rims-rl evaluate`` and ``report``."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import (
    CORES,
    Backend,
    Deterministic,
    Difficulty,
    Force,
    GameMode,
    Seed,
    Threads,
    Trust,
    was_given,
)
from rims_rl.common.errors import UserError


@app.command("evaluate")
def _evaluate(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folder of a run, its folder best, or a .safetensors file; with --random, an environment; with "
            "--variants, one or several.",
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
    threads: Threads = CORES,
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
    trust: Trust = False,
) -> None:
    """Play a trained agent and say how well it does; also where it was not trained, or without some of its RIMs."""
    from rims_rl.evaluation.drop_and_force import read_rims

    options = {"backend": backend, "game_mode": game_mode, "difficulty": difficulty}
    if variants is not None:
        from rims_rl.evaluation.evaluate_variants import evaluate_variants

        given = [key.replace("_", "-") for key in ("random", "drop", "force", *options) if was_given(context, key)]
        if given:
            raise UserError(f"--variants plays runs as they were trained, but for the variant; leave out --{given[0]}")
        names = [name.strip() for name in variants.split(",")]
        evaluate_variants(runs, names, episodes, deterministic, seed, n_envs, threads, out, trust)
        return
    from rims_rl.evaluation.evaluate import evaluate

    if len(runs) > 1:
        raise UserError(f"several runs are compared in variants, so give --variants, or leave out {runs[1]}")
    (run,) = runs
    if random and (drop or force):
        raise UserError("--random plays random actions: leave out --drop and --force")
    forced = read_rims("--force", force)
    if drop == "each":
        from rims_rl.evaluation.evaluate_drop import evaluate_each

        evaluate_each(run, episodes, deterministic, seed, n_envs, threads, out, trust, forced, **options)
        return
    dropped = read_rims("--drop", drop)
    evaluate(run, episodes, deterministic, seed, n_envs, threads, out, random, trust, dropped, forced, **options)


@app.command("report")
def _report(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    baseline: Annotated[
        list[Path] | None, typer.Option(help="JSON of rims-rl evaluate to compare with; may be given several times.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write, with a PNG beside it. Default: in RUN.")] = None,
) -> None:
    """Gather what came out of a run: one JSON file, one picture."""
    from rims_rl.evaluation.run_report import report

    report(run, baseline or [], out)
