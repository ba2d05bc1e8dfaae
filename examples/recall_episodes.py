"""Draw one episode of the recall task and of its variants, as the agent sees them."""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure  # without pyplot: draws with Agg, to a file, and never opens a window

import rims_rl.envs  # noqa: F401  registers the environments

SEED = 2
VARIANTS = {"Recall": "", "RecallNovel": "-Novel", "RecallLoud": "-Loud", "RecallControl": "-Control"}
LABELS = {0: "cue", 1: "distractor", 2: "question", 5: "tokens: cues", 10.5: "others", 18.5: "novel"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("recall_episodes.png"), help="picture to write")
    out = parser.parse_args().out
    figure = Figure((3.2 * len(VARIANTS), 4), dpi=90, layout="constrained")
    for axes, (name, variant) in zip(figure.subplots(1, len(VARIANTS), sharey=True), VARIANTS.items(), strict=True):
        seen = observations_of(gym.make(f"RimsRL/Recall{variant}-v0"))
        axes.imshow(seen.T, cmap="Greys", vmin=0, vmax=3, aspect="auto")
        for edge in (2.5, 6.5, 14.5):  # between kinds of step, cues, others and novel tokens
            axes.axhline(edge, color="C0", lw=0.8)
        axes.set(title=name, xlabel="step")
        axes.set_yticks(list(LABELS), LABELS.values())
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    print(f"written to {out}")


def observations_of(env: gym.Env) -> np.ndarray:
    """(steps, numbers of an observation)"""
    observation, _ = env.reset(seed=SEED)
    seen, done = [], False
    while not done:
        seen.append(observation)
        observation, _, done, _, _ = env.step(0)
    return np.array(seen)


if __name__ == "__main__":
    main()
