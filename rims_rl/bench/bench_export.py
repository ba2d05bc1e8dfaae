"""One step of an exported policy beside the policy itself."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from rims_rl import runtime
from rims_rl.agents import CnnRimsPolicy
from rims_rl.agents.saved.policy_files import describe_policy
from rims_rl.bench.measure import BenchOptions, medians, torch_threads
from rims_rl.exporting.export import FORMATS, load_compiled
from rims_rl.exporting.policy_step import PolicyStep
from rims_rl.runs.provenance import provenance

FRAMES, ACTIONS = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)


def bench_export(options: BenchOptions) -> dict[str, Any]:
    """Measure; the result is ready for JSON."""
    threads, repeats, quick = options.threads, options.repeats, options.quick
    started = time.time()
    compiler = shutil.which("g++") is not None
    with torch_threads(threads), tempfile.TemporaryDirectory() as folder:
        sizes: dict[str, Any] = {"num_rims": 6, "num_active": 4, "rim_size": 100}
        policy = CnnRimsPolicy(FRAMES, ACTIONS, lambda _: 0.0, **sizes)
        policy.set_training_mode(False)
        formats = ["onnx"] + (["pt2"] if compiler and not quick else [])
        for name in formats:
            description = describe_policy(policy, sizes)
            FORMATS[name].write(PolicyStep(policy, FRAMES), description, FRAMES, Path(folder) / f"policy.{name}")
        cases: list[dict[str, Any]] = []
        for batch in (1, 8):
            steps = {"torch": _eager(policy, batch)}
            steps["onnx"] = _onnx(Path(folder) / "policy.onnx", batch, threads)
            if "pt2" in formats:
                steps["pt2"] = _compiled(Path(folder) / "policy.pt2", batch)
            times = medians(steps, 10 * repeats, calls=2 if quick else 20)
            cases.append({"batch": batch, "us": {name: 1e3 * ms for name, ms in times.items()}})
    us = cases[0]["us"]
    return {
        "what": "Median microseconds of one step, candidates taking turns in one process, without gradient. Frames of "
        "Atari's shape (4 x 84 x 84), 6 actions, CnnRimsPolicy with 6 RIMs of 100, 4 active, random weights. torch: "
        "the policy as in a rollout; onnx: rims_rl.runtime; pt2: compiled by AOTInductor, left out without a C++ "
        "compiler.",
        "threads": threads,
        "repeats": repeats,
        "cases": cases,
        "targets": [
            {"what": "batch 1, torch / onnx", "must be": "at least", "target": 1.0, "reached": us["torch"] / us["onnx"]}
        ],
        **provenance(started),
        "onnxruntime": runtime.onnxruntime.__version__,
    }  # fmt: skip


def _frames(batch: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (batch, 4, 84, 84), np.uint8)


def _eager(policy: CnnRimsPolicy, batch: int) -> Callable[[], None]:
    frames, starts = _frames(batch), torch.zeros(batch)
    state = (torch.zeros(1, batch, 600), torch.zeros(1, batch, 600))
    states = [RNNStates(state, state)]

    def run() -> None:
        with torch.no_grad():
            states[0] = policy(torch.as_tensor(frames), states[0], starts, deterministic=True)[-1]

    return run


def _onnx(path: Path, batch: int, threads: int) -> Callable[[], Any]:
    agent, frames, starts = runtime.load(path, threads=threads), _frames(batch), np.zeros(batch, dtype=bool)
    return lambda: agent.act(frames, starts)


def _compiled(path: Path, batch: int) -> Callable[[], None]:
    step, frames, starts = load_compiled(path, trust=True), _frames(batch), torch.zeros(batch, dtype=torch.bool)
    state = [torch.zeros(1, batch, 600), torch.zeros(1, batch, 600)]

    def run() -> None:
        with torch.no_grad():
            result = step(torch.as_tensor(frames), *state, starts)
        state[:] = result["next_h"], result["next_c"]

    return run
