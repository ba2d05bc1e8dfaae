"""``rims-rl bench core``: the RIM layer beside torch's LSTM and GRU, fused or step by step, and plain autograd."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from rims_rl.bench.measure import medians, peak_memory, torch_threads
from rims_rl.core import RIM
from rims_rl.core.rim import plain_scan
from rims_rl.results import provenance, write_json

INPUT_SIZE, RIM_SIZE = 512, 100
SHAPES = [(128, 2), (128, 8), (32, 64), (16, 128)]  # T, B
RIMS = [(6, 4), (24, 4)]  # num_rims, num_active
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def bench_core(threads: int, repeats: int, quick: bool, out: Path) -> None:
    """Measure, print a table, and write ``out``."""
    started = time.time()
    shapes, rims = ([(16, 8)], [(6, 4), (24, 4)]) if quick else (SHAPES, RIMS)
    cases = [(cell, *kt_ka, *shape) for cell in CELLS for kt_ka in rims for shape in shapes]
    with torch_threads(threads):
        sequences = [_sequence(*case, repeats) for case in track(cases, "forward and backward")]
        steps = [_step(cell, *kt_ka, repeats) for cell in CELLS for kt_ka in track(rims, f"one step, {cell}")]
    result = {
        "what": f"Median milliseconds, candidates taking turns in one process. Sequences: forward and backward of "
        f"T x B x {INPUT_SIZE} -> num_rims * {RIM_SIZE}, gradients of the input included. fused: nn.LSTM or nn.GRU "
        "of the same hidden size; stepped: the same module called once per step, states masked as in sb3-contrib; "
        "autograd: the readable RIM under plain autograd; rim: the RIM layer. Steps: one step, B = 8, no gradient. "
        "memory_mb: the most by which one forward and backward made the process grow.",
        "threads": threads,
        "repeats": repeats,
        "sequences": sequences,
        "steps": steps,
        "targets": _targets(sequences, steps),
        **provenance(started),
    }
    write_json(out, result)
    _print(result)
    print(f"written to {out}")


def _sequence(cell: str, num_rims: int, num_active: int, steps: int, batch: int, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    hidden = num_rims * RIM_SIZE
    fused, rim = CELLS[cell](INPUT_SIZE, hidden), RIM(INPUT_SIZE, hidden, num_rims, num_active, cell=cell)
    x = torch.randn(steps, batch, INPUT_SIZE, requires_grad=True)
    state = torch.zeros(batch, hidden)
    layer = rim.layers[0]
    candidates = {
        "fused": _training(fused, lambda: fused(x)[0]),
        "stepped": _training(fused, lambda: _stepped(fused, x)),
        "autograd": _training(rim, lambda: plain_scan(layer, x.unsqueeze(2), state, state)[0]),  # type: ignore[arg-type]
        "rim": _training(rim, lambda: rim(x)[0]),
    }
    return {
        "cell": cell,
        "num_rims": num_rims,
        "num_active": num_active,
        "T": steps,
        "B": batch,
        "ms": medians(candidates, repeats),
        "memory_mb": {name: peak_memory(candidates[name]) for name in ("fused", "autograd", "rim")},
    }


def _step(cell: str, num_rims: int, num_active: int, repeats: int) -> dict[str, Any]:
    hidden, batch = num_rims * RIM_SIZE, 8
    fused, rim = CELLS[cell](INPUT_SIZE, hidden), RIM(INPUT_SIZE, hidden, num_rims, num_active, cell=cell)
    x, h = torch.randn(1, batch, INPUT_SIZE), torch.zeros(1, batch, hidden)
    with torch.no_grad():
        fused_state = (h, h) if cell == "lstm" else h
        ms = medians({"fused": lambda: fused(x, fused_state), "rim": lambda: rim(x, (h, h))}, repeats, calls=50)
    return {"cell": cell, "num_rims": num_rims, "num_active": num_active, "B": batch, "ms": ms}


def _training(module: nn.Module, forward: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        forward().sum().backward()

    return run


def _stepped(module: nn.LSTM | nn.GRU, x: Tensor) -> Tensor:
    """One call per step with the state masked by episode starts: what sb3-contrib's RecurrentPPO does."""
    alive = torch.ones(1, x.shape[1], 1)
    zeros = x.new_zeros(1, x.shape[1], module.hidden_size)
    state = (zeros, zeros) if isinstance(module, nn.LSTM) else zeros
    outputs = []
    for x_t in x:
        state = (state[0] * alive, state[1] * alive) if isinstance(state, tuple) else state * alive
        output, state = module(x_t.unsqueeze(0), state)
        outputs.append(output)
    return torch.cat(outputs)


def _targets(sequences: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What this layer has to reach (LSTM cells, 4 active), and what it reached here."""

    def sequence(num_rims: int, T: int, B: int) -> dict[str, float] | None:
        wanted = ("lstm", num_rims, 4, T, B)
        return next((s["ms"] for s in sequences if tuple(list(s.values())[:5]) == wanted), None)

    targets = []
    if (ms := sequence(6, 128, 8)) is not None:
        targets += [
            ("T=128, B=8: speed relative to fused LSTM", "at least", 0.6, ms["fused"] / ms["rim"]),
            ("T=128, B=8: speed relative to stepped LSTM", "at least", 2.5, ms["stepped"] / ms["rim"]),
        ]
    if (ms := sequence(6, 32, 64)) is not None:
        targets.append(("T=32, B=64: speed relative to fused LSTM", "at least", 0.8, ms["fused"] / ms["rim"]))
    step = steps[0]["ms"]
    targets.append(
        ("one step, B=8, no gradient: time relative to nn.LSTM", "at most", 1.2, step["rim"] / step["fused"])
    )
    for T, B in SHAPES:
        few, many = sequence(6, T, B), sequence(24, T, B)
        if few is not None and many is not None:
            text = f"T={T}, B={B}: time of 24 RIMs relative to 6, 4 active"
            targets.append((text, "below", 4.0, many["rim"] / few["rim"]))
    return [dict(zip(("what", "must be", "target", "reached"), target, strict=True)) for target in targets]


def _print(result: dict[str, Any]) -> None:
    console = Console()
    table = Table(
        title=f"Forward and backward, {result['threads']} threads",
        caption="speed relative to fused; RIMs: all / active; MB: memory, fused / rim",
    )
    for column in ("cell", "RIMs", "T x B", "fused ms", "stepped", "autograd", "rim", "MB"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in result["sequences"]:
        ms, memory = case["ms"], case["memory_mb"]
        table.add_row(
            case["cell"],
            f"{case['num_rims']}/{case['num_active']}",
            f"{case['T']} x {case['B']}",
            f"{ms['fused']:.0f}",
            *(f"{ms['fused'] / ms[name]:.2f}" for name in ("stepped", "autograd", "rim")),
            " / ".join("?" if memory[name] is None else f"{memory[name]:.0f}" for name in ("fused", "rim")),
        )
    console.print(table)
    for target in result["targets"]:
        console.print(f"{target['what']}: {target['reached']:.2f} ({target['must be']} {target['target']})")
