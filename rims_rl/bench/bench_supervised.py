"""One training step of each core on the copying task, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rich.progress import track
from torch import nn

from rims_rl.bench.measure import BenchOptions, medians, torch_threads
from rims_rl.runs.provenance import provenance
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks.copying import Copying

CORES = ("rims", "lstm", "gru", "rmc", "ntm", "dnc", "entnet", "transformer")
ZOO = "rims, zoo settings"  # with dropout
NAMES = ("rims", ZOO, *CORES[1:])
SPANS, BATCH, HIDDEN = (50, 200), 64, 600
DATA = "data"


def bench_supervised(options: BenchOptions) -> dict[str, Any]:
    """Measure; the result is ready for JSON."""
    threads, repeats, quick = options.threads, options.repeats, options.quick
    started, batch, hidden = time.time(), 8 if quick else BATCH, 24 if quick else HIDDEN
    with torch_threads(threads):
        cases = [
            _case(span, batch, hidden, repeats)
            for span in track((5,) if quick else SPANS, "training steps", disable=not options.progress)
        ]
    return {
        "what": f"Median milliseconds of one training step (data, forward, backward, Adam) on copying, batch {batch}, "
        f"{hidden} units, no dropout but for `{ZOO}`, cores taking turns in one process; `{DATA}`: of making the batch "
        "alone. core_forward_backward_ms: the same core and sequence alone, as in bench core.",
        "threads": threads,
        "repeats": repeats,
        "cases": cases,
        "targets": _targets(cases),
        **provenance(started),
    }


def _case(span: int, batch: int, hidden: int, repeats: int) -> dict[str, Any]:
    sizes = [f"span={span}", f"batch_size={batch}", f"hidden_size={hidden}"]
    tasks = {core: Copying(load(Copying, [f"core={core}", *sizes, "core_kwargs={}"])) for core in CORES}
    tasks[ZOO] = Copying(load(Copying, sizes))
    networks = {name: tasks[name].network() for name in NAMES}
    steps = {name: _step(tasks[name], networks[name]) for name in NAMES}
    ms = medians({**steps, DATA: lambda: tasks["rims"].batch(0, 0)}, repeats)
    x = torch.randn(span + 21, batch, tasks["rims"].config.embedding_size)
    alone = medians({core: _alone(networks[core].core, x) for core in ("rims", "lstm")}, repeats)
    return {
        "span": span,
        "batch": batch,
        "hidden_size": hidden,
        "ms": ms,
        "core_forward_backward_ms": alone,
        "sequences_per_second": {name: 1000 * batch / ms[name] for name in NAMES},
        "data_share": {name: ms[DATA] / ms[name] for name in NAMES},
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


def _targets(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What has to be reached, and what was: RIMs as in bench core with as many sequences."""
    targets: list[tuple[str, str, float, float]] = []
    for case in cases:
        span, ms = f"span {case['span']}", case["core_forward_backward_ms"]
        targets.append((f"{span}: share of data in a step, at most", "below", 0.05, max(case["data_share"].values())))
        targets.append((f"{span}: speed of rims relative to lstm", "at least", 0.8, ms["lstm"] / ms["rims"]))
    return [dict(zip(("what", "must be", "target", "reached"), target, strict=True)) for target in targets]
