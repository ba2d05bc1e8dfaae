"""``rims-rl bench``: measure speed."""

from pathlib import Path
from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import Out, Quick, Repeats, Threads

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("core")
def _bench_core(
    threads: Threads = 2, repeats: Repeats = 7, quick: Quick = False, out: Out = Path("docs/results/bench_core.json")
) -> None:
    """Time the RIM core side by side with torch's LSTM and GRU."""
    from rims_rl.bench.bench_core import bench_core

    bench_core(threads, repeats, quick, out)


@bench.command("update")
def _bench_update(
    threads: Threads = 2, repeats: Repeats = 3, quick: Quick = False, out: Out = Path("docs/results/bench_update.json")
) -> None:
    """Time one PPO update and one rollout step side by side with stock RecurrentPPO."""
    from rims_rl.bench.bench_update import bench_update

    bench_update(threads, repeats, quick, out)


@bench.command("train")
def _bench_train(
    env: Annotated[str, typer.Option(help="An Atari game or a MiniGrid environment.")] = "DemonAttack",
    threads: Threads = 2,
    repeats: Repeats = 5,
    quick: Quick = False,
    out: Annotated[Path | None, typer.Option(help="JSON file to write. Default: in docs/results.")] = None,
) -> None:
    """Time training side by side with stock RecurrentPPO, and say where the time goes."""
    from rims_rl.bench.bench_train import bench_train

    bench_train(env, threads, repeats, quick, out)


@bench.command("export")
def _bench_export(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = Path("docs/results/bench_export.json")
) -> None:
    """Time one step of an exported policy side by side with the policy."""
    from rims_rl.bench.bench_export import bench_export

    bench_export(threads, repeats, quick, out)


@bench.command("supervised")
def _bench_supervised(
    threads: Threads = 1,
    repeats: Repeats = 5,
    quick: Quick = False,
    out: Out = Path("docs/results/bench_supervised.json"),
) -> None:
    """Time training on the copying task with every core, side by side."""
    from rims_rl.bench.bench_supervised import bench_supervised

    bench_supervised(threads, repeats, quick, out)


@bench.command("trace")
def _bench_trace(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = Path("docs/results/bench_trace.json")
) -> None:
    """Time what looking inside costs a step of a policy, off and on."""
    from rims_rl.bench.bench_trace import bench_trace

    bench_trace(threads, repeats, quick, out)
