"""``rims-rl bench``: measure speed, and how stable training is."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import RESULTS, Out, Quick, Repeats, Threads

bench = typer.Typer(help="Measure speed on this machine, and how stable training is.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("core")
def _bench_core(
    threads: Threads = 2, repeats: Repeats = 7, quick: Quick = False, out: Out = RESULTS / "bench_core.json"
) -> None:
    """Time the RIM core side by side with torch's LSTM and GRU."""
    from rims_rl.bench.bench_core import bench_core
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_core

    result = bench_core(BenchOptions(threads=threads, repeats=repeats, quick=quick, progress=True))
    _finish(result, out, print_core)


@bench.command("update")
def _bench_update(
    threads: Threads = 2, repeats: Repeats = 3, quick: Quick = False, out: Out = RESULTS / "bench_update.json"
) -> None:
    """Time one PPO update and one rollout step side by side with stock RecurrentPPO."""
    from rims_rl.bench.bench_update import bench_update
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_update

    result = bench_update(BenchOptions(threads=threads, repeats=repeats, quick=quick, progress=True))
    _finish(result, out, print_update)


@bench.command("train")
def _bench_train(
    env: Annotated[str, typer.Option(help="An Atari game or a MiniGrid environment.")] = "DemonAttack",
    threads: Threads = 2,
    repeats: Repeats = 5,
    quick: Quick = False,
    out: Annotated[Path | None, typer.Option(help=f"JSON file to write. Default: in {RESULTS}.")] = None,
) -> None:
    """Time training side by side with stock RecurrentPPO, and say where the time goes."""
    from rims_rl.bench.bench_train import bench_train
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_train

    result = bench_train(env, BenchOptions(threads=threads, repeats=repeats, quick=quick, progress=True))
    name = result["env"]["name"]
    _finish(result, out or RESULTS / f"bench_train{'' if name == 'DemonAttack' else '_' + name}.json", print_train)


@bench.command("export")
def _bench_export(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = RESULTS / "bench_export.json"
) -> None:
    """Time one step of an exported policy side by side with the policy."""
    from rims_rl.bench.bench_export import bench_export
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_export

    result = bench_export(BenchOptions(threads=threads, repeats=repeats, quick=quick, progress=True))
    _finish(result, out, print_export)


@bench.command("supervised")
def _bench_supervised(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = RESULTS / "bench_supervised.json"
) -> None:
    """Time training on the copying task with every core, side by side."""
    from rims_rl.bench.bench_supervised import bench_supervised
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_supervised

    result = bench_supervised(BenchOptions(threads=threads, repeats=repeats, quick=quick, progress=True))
    _finish(result, out, print_supervised)


@bench.command("trace")
def _bench_trace(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = RESULTS / "bench_trace.json"
) -> None:
    """Time what looking inside costs a step of a policy, off and on."""
    from rims_rl.bench.bench_trace import bench_trace
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_trace

    result = bench_trace(BenchOptions(threads=threads, repeats=repeats, quick=quick, progress=True))
    _finish(result, out, print_trace)


@bench.command("stability")
def _bench_stability(
    core: Annotated[list[str] | None, typer.Option(help="As for train; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each core with each learning rate.")] = 12,
    quick: Quick = False,
    out: Out = RESULTS / "bench_stability.json",
) -> None:
    """Train on CartPole many times, and see how large the state of a core becomes."""
    from rims_rl.bench.bench_stability import bench_stability
    from rims_rl.bench.measure import BenchOptions
    from rims_rl.cli.bench_tables import print_stability

    cores = core or ["rims", "rims-robust", "lstm", "gru"]
    _finish(bench_stability(cores, BenchOptions(repeats=seeds, quick=quick)), out, print_stability)


def _finish(result: dict[str, Any], out: Path, show: Callable[[dict[str, Any]], None]) -> None:
    from rims_rl.common.files import write_json

    write_json(out, result)
    show(result)
    print(f"written to {out}")
