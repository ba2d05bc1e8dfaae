"""The command itself, to which each module of commands adds its own; and what becomes of errors."""

import sys
from typing import Annotated

import typer

from rims_rl import __version__
from rims_rl.common.errors import UserError

__all__ = ["app", "main"]

app = typer.Typer(
    name="rims-rl",
    help="Agents with Recurrent Independent Mechanisms: train, test, look inside and ship them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a plain traceback is easier to paste into a bug report
)


def main() -> None:
    """Run the command line; a UserError, or a file that is not as it should be, becomes one line and exit code 2."""
    try:
        app(prog_name="rims-rl")
    except UserError as error:
        message = str(error)
    except OSError as error:
        if error.strerror is None:  # not from the operating system
            raise
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    else:
        return
    print(f"rims-rl: {message}", file=sys.stderr)
    sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rims-rl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
