"""Draw one Atari game with the distractors of every variant: what its agent sees, newest frame and oldest."""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure  # without pyplot: draws with Agg, to a file, and never opens a window

from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from rims_rl.envs.variants import variants_of

SEED, STEPS, FIRE = 3, 60, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="DemonAttack", help="an Atari game")
    parser.add_argument("--out", type=Path, default=Path("atari_distractors.png"), help="picture to write")
    arguments = parser.parse_args()
    variants = variants_of(resolve(arguments.env))
    figure = Figure((2.2 * len(variants), 5), dpi=80, layout="constrained")
    axes = figure.subplots(2, len(variants))
    for column, (name, env) in enumerate(variants.items()):
        envs = make_envs(env, 1, SEED, 1)
        stack = envs.reset()[0]
        for _ in range(STEPS):
            stack = envs.step(np.array([FIRE]))[0][0]
        axes[0, column].set_title(name, fontsize=10)
        for row, text in ((0, "newest frame"), (1, "three steps before")):
            axes[row, column].imshow(stack[3 * (1 - row)], cmap="gray", vmin=0, vmax=255)
            axes[row, column].set(xticks=[], yticks=[])
            axes[row, column].set_xlabel(text, fontsize=8)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
