"""``rims-rl export``."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import Trust


@app.command("export")
def _export(
    run: Annotated[Path, typer.Argument(help="Folder of a run, its folder best, or an exported .safetensors file.")],
    format: Annotated[str, typer.Option(help="onnx, safetensors or pt2.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="File to write. Default: in the run, named after the env.")] = None,
    card: Annotated[bool, typer.Option("--card", help="Write a model card, README.md, beside it.")] = False,
    trust: Trust = False,
) -> None:
    """Write a trained agent as one file, and check that it plays like the agent."""
    from rims_rl.export.export import export

    export(run, format, out, card, trust)
