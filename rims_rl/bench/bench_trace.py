"""What looking inside costs one step of a policy, when it is off and when it is on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor

from rims_rl.agents import CnnRimsPolicy
from rims_rl.bench.measure import BenchOptions, medians, torch_threads
from rims_rl.core import RIM
from rims_rl.core.checks import check_input, check_starts
from rims_rl.core.rims.engines.choose import choose_engine
from rims_rl.runs.provenance import provenance

FRAMES, ACTIONS = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)
WHAT = (
    "Median microseconds of one step of a policy without gradient, candidates taking turns in one process. Frames of "
    "Atari's shape (4 x 84 x 84), 6 actions, CnnRimsPolicy with 6 RIMs of 100, 4 active, random weights; spatial: 49 "
    "positions instead of one vector. bare: a core whose call knows nothing of traces, dropped and forced RIMs; off: "
    "the core as it is; on: inside rim.trace(), whose arrays are read after each step, as rims-rl inspect does."
)


def bench_trace(options: BenchOptions) -> dict[str, Any]:
    """Measure; the result is ready for JSON."""
    threads, repeats, quick = options.threads, options.repeats, options.quick
    started = time.time()
    cases: list[dict[str, Any]] = []
    with torch_threads(threads):
        for input_ in ("vector", "spatial"):
            policy = CnnRimsPolicy(FRAMES, ACTIONS, lambda _: 0.0, num_rims=6, num_active=4, rim_size=100, input=input_)
            policy.set_training_mode(False)
            bare = CnnRimsPolicy(FRAMES, ACTIONS, lambda _: 0.0, num_rims=6, num_active=4, rim_size=100, input=input_)
            bare.set_training_mode(False)
            bare.load_state_dict(policy.state_dict())
            bare.lstm_actor.__class__ = _Bare
            for batch in (1, 8):
                steps = {
                    "bare": _step(bare, batch),
                    "off": _step(policy, batch),
                    "on": _step(policy, batch, traced=True),
                }
                times = medians(steps, 10 * repeats, calls=2 if quick else 20)
                cases.append({"input": input_, "batch": batch, "us": {name: 1e3 * ms for name, ms in times.items()}})
    return {
        "what": WHAT,
        "threads": threads,
        "repeats": repeats,
        "cases": cases,
        "targets": [
            {
                "what": f"{case['input']}, batch {case['batch']}, {a} / {b}",
                "must be": "at most",
                "target": target,
                "reached": case["us"][a] / case["us"][b],
            }
            for case in cases
            for a, b, target in (("off", "bare", 1.02), ("on", "off", 1.2))
        ],
        **provenance(started),
    }


class _Bare(RIM):
    """The call of a core with one layer as it would be if nobody had thought of looking inside; checks are the same."""

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        check_input(x, self.cells[0].input_value)
        assert x.dim() in (3, 4) and x.shape[-1] == self.input_size and not self.batch_first
        if x.dim() == 3:
            x = x.unsqueeze(2)
        assert min(x.shape[:3]) > 0 and episode_starts is not None
        check_starts(episode_starts, tuple(x.shape[:2]), x)
        h, c = self._check_state(state, x, x.shape[1])
        (layer,), last_h, last_c = self.cells, [], []
        for h_l, c_l in zip(h.unbind(0), c.unbind(0), strict=True):
            engine = choose_engine(self.engine, layer, x, h_l, c_l)
            x, h_l, c_l = engine.run(layer, x, h_l, c_l, episode_starts)
            last_h.append(h_l)
            last_c.append(c_l)
            x = x.unsqueeze(2)
        return x.squeeze(2), (last_h[0].unsqueeze(0), last_c[0].unsqueeze(0))


def _step(policy: CnnRimsPolicy, batch: int, traced: bool = False) -> Callable[[], None]:
    frames = np.random.default_rng(0).integers(0, 256, (batch, 4, 84, 84), np.uint8)
    core: Any = policy.core
    starts, zeros = torch.zeros(batch), torch.zeros(1, batch, 600)
    states = [RNNStates((zeros, zeros), (zeros, zeros))]

    def run() -> None:
        trace: Any
        with torch.no_grad(), core.trace() if traced else nullcontext() as trace:
            states[0] = policy(torch.as_tensor(frames), states[0], starts, deterministic=True)[-1]
        if traced:
            for part in trace.layers[0]:
                part.numpy()

    return run
