"""What RIMs do on Atari: what taking each of them out costs, and how often each is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from rims_rl.common.markdown import table
from rims_rl.suites.results import Results


def without_section(done: Results) -> str | None:
    """None if no policy was played without its RIMs."""
    rows, needed, better, count = [], 0, 0, 0
    for job, result in done:
        if without := result.get("without"):
            losses = [each for name, each in without.items() if name != "none"]
            count += len(losses)
            needed += sum(each["loss_95"][0] > 0 for each in losses)
            better += sum(each["loss_95"][1] < 0 for each in losses)
            cells = [f"{each['loss']:,.1f}{'' if _may_be_nothing(each['loss_95']) else ' *'}" for each in losses]
            rows.append([job.name_of_env, job.core, job.seed, f"{without['none']['return']:,.1f}", *cells])
    if not rows:
        return None
    most = max(map(len, rows))
    header = ["game", "core", "seed", "score", *(f"RIM {i}" for i in range(most - 4))]
    return (
        "How many points the mean score falls when one RIM is taken out of the trained policy; * where the 95 % "
        f"interval leaves out 0. So much is lost without {needed} of {count} RIMs, and won without {better}. RIMs of "
        "different seeds have nothing in common but their numbers.\n\n"
        + table(header, [row + [""] * (most - len(row)) for row in rows])
    )


def usage_section(done: Results) -> str | None:
    """None if there are no RIMs."""
    lives: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job, result in done:
        if life := result.get("life"):
            lives.setdefault((job.name_of_env, job.core), []).append(life)
    if not lives:
        return None
    measures = ("mean_active", "collapse", "switching_rate")
    rows = [
        [*group, _usage(seeds), *(f"{np.mean([life[name] for life in seeds]):.2f}" for name in measures)]
        for group, seeds in lives.items()
    ]
    header = ["game", "core", "usage of each RIM, the most used first", "active", "collapse", "switching"]
    return (
        "In 2,000 steps of play: the share of steps in which each RIM is active, how many are at once, how unequally "
        "the work is shared (0: equally), and how often RIMs switch. Means over seeds.\n\n" + table(header, rows)
    )


def _usage(lives: list[dict[str, Any]]) -> str:
    """Sorted within each seed, since nothing makes a RIM of one seed the same as one of another."""
    return ", ".join(f"{share:.2f}" for share in np.mean([sorted(life["usage"], reverse=True) for life in lives], 0))


def _may_be_nothing(interval: list[float]) -> bool:
    return interval[0] <= 0 <= interval[1]
