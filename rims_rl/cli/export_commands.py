"""``rims-rl export`` and ``share``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import Trust, local_run

if TYPE_CHECKING:
    from rims_rl.exporting.export import ExportResult


@app.command("export")
def _export(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, its folder best, an exported .safetensors file, zoo:NAME or hf:owner/name."
        ),
    ],
    format: Annotated[str, typer.Option(help="onnx, safetensors or pt2.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="File to write. Default: in the run, named after the env.")] = None,
    card: Annotated[bool, typer.Option("--card", help="Write a model card, README.md, beside it.")] = False,
    trust: Trust = False,
) -> None:
    """Write a trained agent as one file, and check that it plays like the agent."""
    from rims_rl.exporting.export import ExportOptions, export

    run = local_run(run)
    print_export(export(ExportOptions(run=run, format=format, out=out, card=card, trust=trust, progress=True)))


@app.command("share")
def _share(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="Folder to make. Default: shared, in the run.")] = None,
    push: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Send it to the Hugging Face hub. Default: nothing is sent."),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Only for those whom the hub lets see it.")] = False,
    video: Annotated[bool, typer.Option("--video/--no-video", help="With a video of one game.")] = True,
    small: Annotated[
        bool, typer.Option("--small", help="Weights in 16 bits, evaluated after they were rounded, and no ONNX.")
    ] = False,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of the evaluation of --small.")] = 100,
) -> None:
    """Make the folder that the Hugging Face hub expects: card, safetensors, ONNX, video and settings."""
    from rich.console import Console

    from rims_rl.exporting.hub import ShareOptions, share

    options = ShareOptions(
        run=run,
        out=out or run / "shared",
        push=push,
        private=private,
        video=video,
        small=small,
        episodes=episodes,
        progress=True,
    )
    result = share(options)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{result.folder}: {', '.join(result.files)}")
    if result.url is not None:
        console.print(f"sent to {result.url}; anybody may now: rims-rl evaluate hf:{push}")
    else:
        console.print(f"nothing was sent; to do so: rims-rl share {run} --push OWNER/NAME")


def print_export(result: "ExportResult") -> None:
    from rich.console import Console

    from rims_rl.common.words import count_of

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"played beside the policy for {result.steps:,} steps and {result.episodes} ends of episodes: same actions, "
        f"largest difference {result.difference:.1e}"
    )
    if result.ties:
        console.print(
            f"left out: {count_of(result.ties, 'step')} at which rounding decided which of two RIMs was active"
        )
    console.print(f"written to {result.file}")
    if result.runtime is not None:
        console.print(f"written to {result.runtime}, which runs it with numpy and onnxruntime alone")
    if result.card is not None:
        console.print(f"written to {result.card}")
