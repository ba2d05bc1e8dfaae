"""Draw all variants of the pick-up task, each with what its agent sees."""

import argparse
from pathlib import Path

import gymnasium as gym
from matplotlib.figure import Figure  # without pyplot: draws with Agg, to a file, and never opens a window

import rims_rl.envs  # noqa: F401  registers the environments
from rims_rl.envs.registration import PICKUPS

SEED = 5
COLUMNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("pickup_variants.png"), help="picture to write")
    out = parser.parse_args().out
    rows = -(-len(PICKUPS) // COLUMNS)
    figure = Figure((2.5 * COLUMNS, 4.6 * rows), dpi=80, layout="constrained")
    axes = figure.subplots(2 * rows, COLUMNS)
    for number, variant in enumerate(PICKUPS):
        env = gym.make(f"RimsRL/Pickup-{variant}-v0", render_mode="rgb_array").unwrapped
        env.reset(seed=SEED)
        row, column = divmod(number, COLUMNS)
        room, view = axes[2 * row, column], axes[2 * row + 1, column]
        room.imshow(env.get_frame(tile_size=24))
        room.set_title(f"{variant}\n{env.mission}", fontsize=9)
        view.imshow(env.get_frame(tile_size=24, agent_pov=True))
        view.set_xlabel("what the agent sees", fontsize=8)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
