"""The command itself, to which each module of commands adds its own; and what becomes of errors and messages."""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated

import typer

from rims_rl import __version__
from rims_rl.common.errors import UserError

__all__ = ["app", "main", "shown_messages", "with_flags"]

app = typer.Typer(
    name="rims-rl",
    help="Agents with Recurrent Independent Mechanisms: train, test, look inside and ship them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a plain traceback is easier to paste into a bug report
)


def main() -> None:
    """Run the command line; a UserError, or a file that is not as it should be, becomes one line and exit code 2."""
    try:
        with shown_messages():
            app(prog_name="rims-rl")
    except UserError as error:
        message = with_flags(str(error))
    except OSError as error:
        if error.strerror is None:  # not from the operating system
            raise
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    else:
        return
    print(f"rims-rl: {message}", file=sys.stderr)
    sys.exit(2)


def with_flags(message: str) -> str:
    """A sentence of the library, which has names of options in backticks, in the words of the command line."""
    return re.sub(r"`(\w+)`", lambda name: _flags().get(name[1], name[0]), message)


@cache
def _flags() -> dict[str, str]:
    """``"init_from"`` -> ``"--init-from"``, of all commands."""
    flags = {"resume": "rims-rl train --resume", "n_timesteps": "-n"}  # the first is a function in Python
    commands = [typer.main.get_command(app)]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        for option in command.params:
            if option.param_type_name == "option" and option.name:
                flags.setdefault(option.name, "/".join((option.opts[0], *option.secondary_opts)))
    return flags


@contextmanager
def shown_messages() -> Iterator[None]:
    """Show what the library says while it works: news on stdout, warnings on stderr."""
    logger, handler = logging.getLogger("rims_rl"), _Messages()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Messages(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        message = with_flags(record.getMessage())
        if record.levelno >= logging.WARNING:
            print(f"rims-rl: {message}", file=sys.stderr)
            return
        from rich import get_console  # the one of progress bars, which stay below

        get_console().print(message, highlight=False, markup=False, soft_wrap=True)


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
