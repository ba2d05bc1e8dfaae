"""What distractors cost each core on Atari: the share of its score above random play that is left with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rims_rl.common.markdown import table
from rims_rl.common.words import count_of
from rims_rl.config.zoo import human_scores
from rims_rl.suites.pages.estimates import estimate, mean
from rims_rl.suites.results import Results

Shares = dict[str, float]  # of the score of one policy, by variant
Runs = dict[tuple[str, int], Shares]  # by game and seed


def distractors_section(done: Results) -> str | None:
    """None if no policy was played in variants."""
    played = [result["evaluation"] for _, result in done if "variants" in result["evaluation"]]
    if not played:
        return None
    cores: dict[str, Runs] = {}
    for job, result in done:
        if shares := _shares(job.name_of_env, result["evaluation"]):
            cores.setdefault(job.core, {})[job.name_of_env, job.seed] = shares
    if not cores:
        return "No policy is better than random play, with its 95 % interval, so that there is nothing to lose yet."
    variants = list(dict.fromkeys(name for runs in cores.values() for shares in runs.values() for name in shares))
    text = (
        f"The same policies, frozen, in variants of the game; they were trained in `{played[0]['reference']}`. The "
        "share of the score above random play that is left (1: nothing is lost, 0: as random play, which distractors "
        "do not change). Counted are policies whose score where they were trained is above random play with its 95 % "
        f"interval: {sum(map(len, cores.values()))} of {len(played)}.\n\n"
    )
    if runs := sorted(set.intersection(*(set(runs) for runs in cores.values()))):
        rows = [[core, *(_mean([of[run][name] for run in runs]) for name in variants)] for core, of in cores.items()]
        text += (
            f"Means over the {count_of(len(runs), 'pair')} of game and seed that count for all of these cores, with 95 "
            f"% bootstrap intervals:\n\n{table(['core', *variants], rows)}\n\n"
        )
    else:
        text += "No game counts yet with the same seed for all of these cores, so that there is no mean over games.\n\n"
    rows = []
    for game in dict.fromkeys(game for runs in cores.values() for game, _ in runs):
        for core, of in cores.items():
            if ours := [shares for (name, _), shares in of.items() if name == game]:
                means = [f"{np.mean([shares[name] for shares in ours]):.2f}" for name in variants]
                rows.append([game, core, str(len(ours)), *means])
    return text + f"By game, means over seeds:\n\n{table(['game', 'core', 'seeds', *variants], rows)}"


def _shares(game: str, played: dict[str, Any]) -> Shares | None:
    """None if the policy is not surely better than random play, so that there is nothing to lose."""
    variants, random = played.get("variants"), human_scores().get(game, {}).get("random")
    if not variants or random is None or variants[played["reference"]]["return_95"][0] <= random:
        return None
    best = variants[played["reference"]]["return"] - random
    return {name: (each["return"] - random) / best for name, each in variants.items() if name != played["reference"]}


def _mean(shares: list[float]) -> str:
    return str(estimate(mean, np.array(shares)[:, None]))
