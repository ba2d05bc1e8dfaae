"""How much RIMs' activity tells about what happens: mutual information, with a permutation test.

Steps follow each other and are alike, so they are never shuffled one by one. What is exchanged is whole stretches: a
stretch lasts from one reset of the memory to the next. Its first step is left out, for there all RIMs attend alike and
those with the lowest numbers are active, whatever happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import xlogy  # type: ignore[import-untyped]

PERMUTATIONS = 4999
BATCH = 50  # of these are tried at once
ENOUGH = 20  # stretches, to exchange them

WHAT = (
    "bits[event][k]: mutual information between whether RIM k is active and whether the event happens, step by step, "
    "without the first step after each reset of the memory. p: share of rearrangements, the real order among them, "
    f"with as much information or more. If there are at least {ENOUGH} stretches from reset to reset, a rearrangement "
    "gives each stretch the events of another one, from its beginning on, repeated if that is shorter; else it turns "
    "the events of each stretch around in a circle, by a number of steps of its own. p_holm: p after Holm's correction "
    "for all pairs of a RIM and an event that are tested. Pairs of which one never changes are not tested (null)."
)


def mutual_information(active: np.ndarray, events: np.ndarray) -> np.ndarray:
    """(T, K) and (..., T, E), of booleans -> (..., E, K) bits, from how often both, one or none happen."""
    steps = max(len(active), 1)
    both = (np.swapaxes(events, -1, -2).astype(np.float32) @ active.astype(np.float32)).astype(float)  # (..., E, K)
    event, rim = events.sum(-2)[..., None], active.sum(0)
    joint = both, event - both, rim - both, steps - event - rim + both
    alone = event, steps - event, rim, steps - rim
    nats = sum(xlogy(n, n) for n in joint) - sum(xlogy(n, n) for n in alone) + xlogy(steps, steps)
    return np.asarray(np.maximum(nats / steps / np.log(2), 0))  # rounding


def measure_information(active: np.ndarray, events: np.ndarray, starts: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Information of each RIM about each event, and how likely as much is by chance; see :data:`WHAT`.

    Args:
        active: (T, K) bool.
        events: (T, E) bool.
        starts: (T) bool, where the memory was reset before the step.
    """
    stretches = _stretches(starts)
    order = np.concatenate([np.zeros(0, int), *stretches])
    activity, happened = active[order], events[order]
    bits = mutual_information(activity, happened)
    lengths = np.array([len(stretch) for stretch in stretches], int)
    rearrange = _exchange if len(stretches) >= ENOUGH else _turn
    generator, as_much = np.random.default_rng(seed), np.ones(bits.shape)
    for begin in range(0, PERMUTATIONS, BATCH):
        orders = rearrange(lengths, min(BATCH, PERMUTATIONS - begin), generator)
        as_much += (mutual_information(activity, happened[orders]) >= bits - 1e-9).sum(0)
    p = as_much / (PERMUTATIONS + 1)
    tested = _changes(happened)[:, None] & _changes(activity)[None]
    corrected = np.full(p.shape, np.nan)
    corrected[tested] = holm(p[tested])
    return {
        "unit": f"{len(stretches)} stretches" if rearrange is _exchange else f"circles of {len(stretches)} stretches",
        "steps": len(order),
        "permutations": PERMUTATIONS,
        "tests": int(tested.sum()),
        "bits": bits.tolist(),
        "p": _with_none(p, tested),
        "p_holm": _with_none(corrected, tested),
    }


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down correction, which holds however the tests depend on each other."""
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected


def switches(active: np.ndarray, event: np.ndarray, starts: np.ndarray, lags: np.ndarray) -> tuple[int, np.ndarray]:
    """How often the event begins, and (lags, K): how much more often each RIM is active so many steps after it begins
    than just before. Only steps of the same stretch count; NaN where there are none.

    ``active`` is (T, K), ``event`` and ``starts`` are (T).
    """
    stretch = np.cumsum(starts)
    begins = np.flatnonzero(event[1:] & ~event[:-1] & ~starts[1:]) + 1
    changes = np.full((len(lags), active.shape[1]), np.nan)
    for row, lag in enumerate(lags):
        at = begins[(begins + lag >= 0) & (begins + lag < len(active))]
        at = at[stretch[at] == stretch[at + lag]]
        if len(at):
            changes[row] = (active[at + lag].astype(float) - active[at - 1]).mean(0)
    return len(begins), changes


def _stretches(starts: np.ndarray) -> list[np.ndarray]:
    """The steps of each stretch but for its first; none of them is empty."""
    parts = np.split(np.arange(len(starts)), np.flatnonzero(starts))
    return [part[1:] for part in parts if len(part) > 1]


def _exchange(lengths: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """(count, T): which steps' events each step gets when stretches take those of each other."""
    begins, stretch, at = _places(lengths)
    others = generator.permuted(np.tile(np.arange(len(lengths)), (count, 1)), axis=1)[:, stretch]
    return np.asarray(begins[others] + at % lengths[others])


def _turn(lengths: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """The same when those of each stretch are turned around in a circle."""
    begins, stretch, at = _places(lengths)
    turns = generator.integers(lengths, size=(count, len(lengths)))[:, stretch]
    return np.asarray(begins[stretch] + (at + turns) % lengths[stretch])


def _places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each stretch begins; for each step its stretch, and its place there."""
    begins, stretch = np.cumsum(lengths) - lengths, np.repeat(np.arange(len(lengths)), lengths)
    return begins, stretch, np.arange(lengths.sum()) - begins[stretch]


def _changes(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.any(0) & ~x.all(0))


def _with_none(x: np.ndarray, there: np.ndarray) -> list[list[float | None]]:
    return [
        [float(v) if t else None for v, t in zip(row, row_there, strict=True)]
        for row, row_there in zip(x, there, strict=True)
    ]
