"""Draw clips of the tasks with bouncing balls: the three kinds of one, and what is seen of the other."""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure  # without pyplot: draws with Agg, to a file, and never opens a window
from matplotlib.patches import Rectangle

from rims_rl.supervised import bouncing_balls, crops

FRAMES, EVERY = 51, 5
WINDOWS, WINDOW = 10, 11  # of the task crops, in pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bouncing_clips.png"), help="picture to write")
    out = parser.parse_args().out
    random = np.random.default_rng(0)
    rows = {kind: bouncing_balls.clips(kind, 1, FRAMES, random)[:, 0].numpy() for kind in bouncing_balls.KINDS}
    rows["crops"] = crops.clips(3, 1, FRAMES, random)[:, 0]
    figure = Figure((11, 4.4), dpi=80, layout="constrained")
    for line, (kind, frames) in zip(figure.subplots(len(rows), 1 + FRAMES // EVERY), rows.items(), strict=True):
        for axes, time in zip(line, range(0, FRAMES, EVERY), strict=True):
            axes.imshow(frames[time], cmap="gray_r", vmin=0, vmax=1.5)
            axes.set(xticks=[], yticks=[])
            if kind == "crops":
                for y, x in random.integers(crops.SIDE - WINDOW + 1, size=(WINDOWS, 2)):
                    axes.add_patch(Rectangle((x - 0.5, y - 0.5), WINDOW, WINDOW, fill=False, edgecolor="C1"))
            if kind == "four":
                axes.set_title(f"frame {time}", fontsize=8)
        line[0].set_ylabel(kind, fontsize=9)
    figure.savefig(out)


if __name__ == "__main__":
    main()
