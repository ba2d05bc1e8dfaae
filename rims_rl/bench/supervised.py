"""``rims-rl bench supervised``: one training step of each core on the copying task, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from rims_rl.bench.measure import medians, torch_threads
from rims_rl.results import provenance, write_json
from rims_rl.supervised.copying import Copying
from rims_rl.supervised.task import load

CORES = ("rims", "lstm", "gru", "rmc", "ntm", "dnc", "entnet", "transformer")
SPANS, BATCH, HIDDEN = (50, 200), 64, 600
DATA = "data"


def bench_supervised(threads: int, repeats: int, quick: bool, out: Path) -> None:
    """Measure, print a table, and write ``out``."""
    started, batch, hidden = time.time(), 8 if quick else BATCH, 24 if quick else HIDDEN
    with torch_threads(threads):
        cases = [_case(span, batch, hidden, repeats) for span in track((5,) if quick else SPANS, "training steps")]
    result = {
        "what": f"Median milliseconds of one training step (data, forward, backward, Adam) on copying, batch {batch}, "
        f"{hidden} units, no dropout, cores taking turns in one process; `{DATA}`: of making the batch alone. "
        "core_forward_backward_ms: the same core and sequence alone, as in bench core.",
        "threads": threads,
        "repeats": repeats,
        "cases": cases,
        **provenance(started),
    }
    write_json(out, result)
    _print(cases)
    print(f"written to {out}")


def _case(span: int, batch: int, hidden: int, repeats: int) -> dict[str, Any]:
    tasks = {
        core: Copying(load(Copying, [f"core={core}", f"span={span}", f"batch_size={batch}", f"hidden_size={hidden}",
                                     "core_kwargs={}"]))
        for core in CORES
    }  # fmt: skip
    networks = {core: task.network() for core, task in tasks.items()}
    steps = {core: _step(tasks[core], networks[core]) for core in CORES}
    ms = medians({**steps, DATA: lambda: tasks["rims"].batch(0, 0)}, repeats)
    x = torch.randn(span + 21, batch, tasks["rims"].config.embedding_size)
    alone = medians({core: _alone(networks[core].core, x) for core in ("rims", "lstm")}, repeats)
    return {
        "span": span,
        "batch": batch,
        "hidden_size": hidden,
        "ms": ms,
        "core_forward_backward_ms": alone,
        "sequences_per_second": {core: 1000 * batch / ms[core] for core in CORES},
        "data_share": {core: ms[DATA] / ms[core] for core in CORES},
    }


def _step(task: Copying, network: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.Adam(network.parameters())

    def run() -> None:
        optimizer.zero_grad()
        task.loss(network, *task.batch(0, 0)).backward()
        optimizer.step()

    return run


def _alone(core: Any, x: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        core.zero_grad()
        core(x)[0].sum().backward()

    return run


def _print(cases: list[dict[str, Any]]) -> None:
    table = Table(
        "core", *(f"span {case['span']}" for case in cases), title="Sequences per second, training on copying"
    )
    for core in CORES:
        table.add_row(core, *(f"{case['sequences_per_second'][core]:.1f}" for case in cases))
    share = (f"{max(case['data_share'].values()):.2%}" for case in cases)
    table.add_row("data, at most", *share, style="dim")
    Console().print(table)
