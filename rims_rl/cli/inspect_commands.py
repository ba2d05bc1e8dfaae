"""``rims-rl enjoy`` and ``inspect``: watch an agent, and look inside."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import CORES, Deterministic, Drop, Force, Seed, Threads


@app.command("enjoy")
def _enjoy(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its folder best.")],
    out: Annotated[Path | None, typer.Option(help="File to write: .mp4 or .gif. Default: in the run.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes; on Atari, whole games.")] = 1,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    deterministic: Deterministic = None,
    seed: Seed = 0,
    fps: Annotated[
        float | None,
        typer.Option(
            min=1, max=1000, help="Frames, that is steps, per second of the video. Default: the game's own speed."
        ),
    ] = None,
    window: Annotated[bool, typer.Option("--window", help="Show a window instead of writing a file.")] = False,
    threads: Threads = CORES,
    game_mode: Annotated[int | None, typer.Option(help="ALE's mode of an Atari game. Default: the run's.")] = None,
    difficulty: Annotated[int | None, typer.Option(help="ALE's difficulty. Default: the run's.")] = None,
    overlay: Annotated[bool, typer.Option("--overlay", help="Draw what RIMs do beside the game.")] = False,
    drop: Drop = None,
    force: Force = None,
) -> None:
    """Watch a trained agent: a video in colour, or a window."""
    from rims_rl.evaluation.drop_and_force import read_rims
    from rims_rl.inspect.enjoy import enjoy

    rims = read_rims("--drop", drop), read_rims("--force", force)
    enjoy(
        run, out, episodes, max_steps, deterministic, seed, fps, window, threads, game_mode, difficulty, overlay, *rims
    )


@app.command("inspect")
def _inspect(
    run: Annotated[Path, typer.Argument(help="Folder of a run whose core is rims, or its folder best.")],
    out: Annotated[Path | None, typer.Option(help="Recording to write: .npz. Default: in the run.")] = None,
    html: Annotated[Path | None, typer.Option(help="Page to write, too: one .html file, to open in a browser.")] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder to write pictures and statistics to: use, events, information.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another run, to be played alike and put beside it in pictures.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes; on Atari, whole games.")] = 1,
    variant: Annotated[
        str | None, typer.Option(help="Variant of the environment to play in, such as novel-colour.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    deterministic: Deterministic = None,
    seed: Seed = 0,
    threads: Threads = CORES,
    drop: Drop = None,
    force: Force = None,
) -> None:
    """Record what each RIM does while the agent plays; make a page to look through it, or pictures."""
    from rims_rl.evaluation.drop_and_force import read_rims
    from rims_rl.inspect.record import inspect

    rims = read_rims("--drop", drop), read_rims("--force", force)
    inspect(run, out, html, episodes, variant, max_steps, deterministic, seed, threads, *rims, pictures, compare)
