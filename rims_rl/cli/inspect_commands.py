"""``rims-rl enjoy`` and ``inspect``: watch an agent, and look inside."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import AllThreads, Deterministic, Drop, Force, Seed, Trust, local_run, read_rims
from rims_rl.common.cores import THREADS


@app.command("enjoy")
def _enjoy(
    run: Annotated[Path, typer.Argument(help="Folder of a run, its folder best, zoo:NAME or hf:owner/name.")],
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
    threads: AllThreads = THREADS,
    game_mode: Annotated[int | None, typer.Option(help="ALE's mode of an Atari game. Default: the run's.")] = None,
    difficulty: Annotated[int | None, typer.Option(help="ALE's difficulty. Default: the run's.")] = None,
    overlay: Annotated[bool, typer.Option("--overlay", help="Draw what RIMs do beside the game.")] = False,
    drop: Drop = None,
    force: Force = None,
    trust: Trust = False,
) -> None:
    """Watch a trained agent: a video in colour, or a window."""
    from rich.console import Console

    from rims_rl.inspect.enjoy import EnjoyOptions, enjoy

    options = EnjoyOptions(
        run=local_run(run),
        out=out,
        episodes=episodes,
        max_steps=max_steps,
        deterministic=deterministic,
        seed=seed,
        fps=fps,
        window=window,
        threads=threads,
        game_mode=game_mode,
        difficulty=difficulty,
        overlay=overlay,
        drop=read_rims("--drop", drop),
        force=read_rims("--force", force),
        trust=trust,
        progress=True,
    )
    result = enjoy(options)
    if result.video is not None:
        text = f"{result.steps:,} frames, {result.fps:g} per second: {result.video}"
        Console(highlight=False).print(text, soft_wrap=True)


@app.command("inspect")
def _inspect(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run whose core is rims, its folder best, zoo:NAME or hf:owner/name.")
    ],
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
    threads: AllThreads = THREADS,
    drop: Drop = None,
    force: Force = None,
    trust: Trust = False,
) -> None:
    """Record what each RIM does while the agent plays; make a page to look through it, or pictures."""
    from rich.console import Console

    from rims_rl.inspect.record import InspectOptions, inspect

    options = InspectOptions(
        run=local_run(run),
        out=out,
        html=html,
        pictures=pictures,
        compare=compare and local_run(compare),
        episodes=episodes,
        variant=variant,
        max_steps=max_steps,
        deterministic=deterministic,
        seed=seed,
        threads=threads,
        drop=read_rims("--drop", drop),
        force=read_rims("--force", force),
        trust=trust,
        progress=True,
    )
    result, console = inspect(options), Console(highlight=False)
    for one in result.recordings:
        console.print(f"{one.steps:,} steps, {_megabytes(one.file)}: {one.file}", soft_wrap=True)
    if result.page is not None:
        console.print(f"the page, {_megabytes(result.page)}: {result.page}", soft_wrap=True)
    if result.pictures is not None:
        console.print(f"pictures and statistics.json: {result.pictures}", soft_wrap=True)


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"
