"""The RIM layer beside torch's LSTM and GRU, fused or step by step, and plain autograd."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from rims_rl.bench.measure import BenchOptions, medians, peak_memory, torch_threads
from rims_rl.core import weights_at_rest
from rims_rl.core.registry import core_factory
from rims_rl.core.rims.engines.choose import ENGINES, OPERATOR, engine_of
from rims_rl.runs.provenance import provenance

INPUT_SIZE, RIM_SIZE = 512, 100
SHAPES = [(128, 2), (128, 8), (32, 64), (16, 128)]  # T, B
RIMS: dict[str, tuple[str, int, int, dict[str, Any]]] = {  # core, num_rims, num_active, options
    "rim 6/4": ("rims", 6, 4, {}),
    "rim 6/6": ("rims", 6, 6, {}),
    "robust 6/4": ("rims-robust", 6, 4, {}),
    "at most 6/4": ("rims", 6, 4, {"activation": "at_most"}),
    "rim 24/4": ("rims", 24, 4, {}),
    "rim 96/4": ("rims", 96, 4, {}),
}
SHAPE_OF_OPTIONS = (32, 64)
OPTIONS: list[dict[str, Any]] = [
    {}, {"communication": "gated"}, {"start": "learned"}, {"hear": "updates"}, {"asleep": "drift"},
    {"asleep": "listen"}, {"asleep": "half-listen"}, {"activation": "at_most"}, {"balance": 0.001},
    {"selection": "straight-through"}, {"selection": "soft"}, {"competition": "rims"},
]  # fmt: skip
RELATIVES = ("rims-robust", "rims-released", "scoff", "brims", "rims-workspace", "block-lstm")
FUSED: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def bench_core(options: BenchOptions) -> dict[str, Any]:
    """Measure; the result is ready for JSON."""
    threads, repeats, quick = options.threads, options.repeats, options.quick
    started = time.time()
    cases = [(cell, T, B) for cell in FUSED for T, B in ([(16, 8)] if quick else SHAPES)]
    with torch_threads(threads):
        sequences = [
            _sequence(*case, repeats) for case in track(cases, "forward and backward", disable=not options.progress)
        ]
        of_options = _options(*((16, 8) if quick else SHAPE_OF_OPTIONS), repeats)
        steps = [_step(cell, repeats) for cell in track(list(FUSED), "one step", disable=not options.progress)]
    return {
        "what": "Median milliseconds, candidates taking turns in one process. Sequences: forward and backward of "
        f"T x B x {INPUT_SIZE}, gradients of the input included. fused: nn.LSTM or nn.GRU with {6 * RIM_SIZE} units; "
        "stepped: the same module called once per step, states masked as in sb3-contrib; autograd: the readable RIM "
        f"with 6 RIMs of {RIM_SIZE}, 4 active, under plain autograd; torch loops: the same with a backward written by "
        "hand, in torch; operator: the loops in C as torch.compile calls them; "
        f"rim K/A: the RIM layer, K RIMs of {RIM_SIZE}, A active; robust: with the options of "
        "rims-robust; at most: with activation='at_most', of whom num_active acted on average. "
        "Options: forward and backward of a layer with 6 RIMs, 4 active, and each option by itself, "
        "or another core. Steps: one step, B = 8, no gradient; at rest: what can be made of the weights is made once. "
        "memory_mb: the most by which one forward and backward made the process grow, the median of five.",
        "threads": threads,
        "repeats": repeats,
        "sequences": sequences,
        "options": of_options,
        "steps": steps,
        "targets": _targets(sequences, steps),
        **provenance(started),
    }


def _modules(cell: str) -> tuple[nn.LSTM | nn.GRU, dict[str, Any]]:
    torch.manual_seed(0)
    rims = {
        name: core_factory(core)(INPUT_SIZE, K * RIM_SIZE, K, active, cell=cell, **options)
        for name, (core, K, active, options) in RIMS.items()
    }
    return FUSED[cell](INPUT_SIZE, 6 * RIM_SIZE), rims


def _sequence(cell: str, steps: int, batch: int, repeats: int) -> dict[str, Any]:
    fused, rims = _modules(cell)
    x = torch.randn(steps, batch, INPUT_SIZE, requires_grad=True)
    readable, state = rims["rim 6/4"], torch.zeros(batch, 6 * RIM_SIZE)
    layer: Any = readable.layers[0]
    candidates = {
        "fused": _training(fused, lambda: fused(x)[0]),
        "stepped": _training(fused, lambda: _stepped(fused, x)),
        "autograd": _training(readable, lambda: ENGINES["readable"].run(layer, x.unsqueeze(2), state, state)[0]),
        "torch loops": _training(readable, lambda: ENGINES["torch"].run(layer, x.unsqueeze(2), state, state)[0]),
        **{name: _training(rim, lambda rim=rim: rim(x)[0]) for name, rim in rims.items()},  # type: ignore[misc]
    }
    if OPERATOR.refusal(layer, x.unsqueeze(2)) is None:
        candidates["operator"] = _training(readable, lambda: OPERATOR.run(layer, x.unsqueeze(2), state, state)[0])
    return {
        "cell": cell,
        "T": steps,
        "B": batch,
        "ms": medians(candidates, repeats),
        "memory_mb": {name: peak_memory(run) for name, run in candidates.items()},
        "num_active": _num_active(rims["at most 6/4"], x),
    }


def _options(steps: int, batch: int, repeats: int) -> dict[str, Any]:
    """What each option of the mechanism costs, and each relative; the first are the paper's RIMs."""
    x = torch.randn(steps, batch, INPUT_SIZE, requires_grad=True)
    rims = {}
    for core, options in [*(("rims", options) for options in OPTIONS), *((core, {}) for core in RELATIVES)]:
        name = ", ".join(f"{name}={value!r}" for name, value in options.items()) or core
        rims[name] = core_factory(core)(INPUT_SIZE, 6 * RIM_SIZE, 6, 4, **options)
    candidates = {name: _training(rim, lambda rim=rim: rim(x)[0]) for name, rim in rims.items()}  # type: ignore[misc]
    engines = {name: engine_of(rim) for name, rim in rims.items()}
    return {"T": steps, "B": batch, "ms": medians(candidates, repeats), "engines": engines}


def _step(cell: str, repeats: int) -> dict[str, Any]:
    fused, rims = _modules(cell)
    x, h = torch.randn(1, 8, INPUT_SIZE), torch.zeros(1, 8, 6 * RIM_SIZE)
    fused_state = (h, h) if cell == "lstm" else h
    rim = rims["rim 6/4"]

    def at_rest() -> None:
        with weights_at_rest(rim):
            for _ in range(128):  # a rollout
                rim(x, (h, h))

    candidates = {"fused": lambda: fused(x, fused_state), "rim 6/4": lambda: rim(x, (h, h))}
    with torch.no_grad():
        ms = medians(candidates, repeats, calls=50) | medians({"rim 6/4, at rest": at_rest}, repeats)
    ms["rim 6/4, at rest"] /= 128
    return {"cell": cell, "B": 8, "ms": ms}


def _training(module: nn.Module, forward: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        forward().sum().backward()

    return run


def _num_active(rim: Any, x: Tensor) -> float:
    with torch.no_grad(), rim.trace(only_active=True) as trace:
        rim(x)
    return float(trace.active.sum(-1).float().mean())


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
    """What this layer has to reach with LSTM cells, and what it reached here."""
    targets: list[tuple[str, str, float, float]] = []
    for case in sequences:
        if case["cell"] != "lstm":
            continue
        shape, ms = f"T={case['T']}, B={case['B']}", case["ms"]
        if (case["T"], case["B"]) in ((128, 8), (32, 64)):
            targets.append((f"{shape}: speed relative to fused", "at least", 1.25, ms["fused"] / ms["rim 6/4"]))
        if (case["T"], case["B"]) == (128, 8):
            targets.append((f"{shape}: speed relative to stepped", "at least", 2.5, ms["stepped"] / ms["rim 6/4"]))
        robust = ms["rim 6/4"] / ms["robust 6/4"]
        targets.append((f"{shape}: speed of rims-robust relative to rims", "at least", 0.9, robust))
        fewer = f"{shape}: time with {case['num_active']:.1f} RIMs active of at most 4, relative to 4"
        targets.append((fewer, "at most", 1.0, ms["at most 6/4"] / ms["rim 6/4"]))
        targets.append((f"{shape}: time of 24 RIMs relative to 6", "at most", 1.6, ms["rim 24/4"] / ms["rim 6/4"]))
        targets.append((f"{shape}: time of 96 RIMs relative to 6", "at most", 4.0, ms["rim 96/4"] / ms["rim 6/4"]))
        memory = case["memory_mb"]
        if memory["rim 6/4"]:
            more = memory["rim 24/4"] / memory["rim 6/4"]
            targets.append((f"{shape}: memory of 24 RIMs relative to 6", "at most", 2.0, more))
    ms = steps[0]["ms"]
    targets.append(("one step, B=8, no gradient: time relative to fused", "at most", 1.2, ms["rim 6/4"] / ms["fused"]))
    return [dict(zip(("what", "must be", "target", "reached"), target, strict=True)) for target in targets]
