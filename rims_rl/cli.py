"""The ``rims-rl`` command: parses arguments, then calls one function of one verb module.

Verb modules import torch, so each command imports its own when it runs and ``rims-rl --help`` stays quick.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rims_rl import __version__
from rims_rl.errors import UserError

__all__ = ["app", "main"]

app = typer.Typer(
    name="rims-rl",
    help="Agents with Recurrent Independent Mechanisms: train, test, look inside and ship them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a plain traceback is easier to paste into a bug report
)

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line; a UserError becomes one line on stderr and exit code 2."""
    try:
        app(prog_name="rims-rl")
    except UserError as error:
        print(f"rims-rl: {error}", file=sys.stderr)
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


Threads = Annotated[int, typer.Option(min=1, help="Threads torch may use.")]
Repeats = Annotated[int, typer.Option(min=1, help="Timed repeats of each measurement.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases, to see that it works.")]
Out = Annotated[Path, typer.Option(help="JSON file to write.")]


@bench.command("core")
def _bench_core(
    threads: Threads = 2, repeats: Repeats = 7, quick: Quick = False, out: Out = Path("docs/results/bench_core.json")
) -> None:
    """Time the RIM core side by side with torch's LSTM and GRU."""
    from rims_rl.bench.core import bench_core

    bench_core(threads, repeats, quick, out)


@bench.command("update")
def _bench_update(
    threads: Threads = 2, repeats: Repeats = 3, quick: Quick = False, out: Out = Path("docs/results/bench_update.json")
) -> None:
    """Time one PPO update and one rollout step side by side with stock RecurrentPPO."""
    from rims_rl.bench.update import bench_update

    bench_update(threads, repeats, quick, out)
