"""Draw what the supervised tasks show: bouncing balls and what is seen of them, a stream to add, and digits."""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure  # without pyplot: draws with Agg, to a file, and never opens a window
from matplotlib.patches import Rectangle

from rims_rl.supervised.data.mnist import mnist
from rims_rl.supervised.task import generator
from rims_rl.supervised.tasks import adding, bouncing_balls, crops, moving_mnist, sequential_mnist

FRAMES, EVERY = 51, 5
WINDOWS, WINDOW = 10, 11  # of the task crops, in pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the pictures")
    parser.add_argument("--mnist", type=Path, help="folder with MNIST's four files; without it, no digits are drawn")
    options = parser.parse_args()
    drawn = {"bouncing_clips": balls(), "adding_stream": stream()}
    if options.mnist:
        images = mnist("t10k", options.mnist)[0]
        drawn |= {"mnist_sides": sides(images[:1]), "moving_mnist_clip": moving(images.numpy())}
    for name, figure in drawn.items():
        figure.savefig(options.out / f"{name}.png")


def balls() -> Figure:
    random = np.random.default_rng(0)
    rows = {kind: bouncing_balls.clips(kind, 1, FRAMES, random)[:, 0].numpy() for kind in bouncing_balls.KINDS}
    rows["crops"] = crops.clips(3, 1, FRAMES, random)[:, 0]
    figure = Figure((11, 4.4), dpi=80, layout="constrained")
    for line, (kind, frames) in zip(figure.subplots(len(rows), 1 + FRAMES // EVERY), rows.items(), strict=True):
        for axes, time in zip(line, range(0, FRAMES, EVERY), strict=True):
            show(axes, frames[time])
            if kind == "crops":
                for y, x in random.integers(crops.SIDE - WINDOW + 1, size=(WINDOWS, 2)):
                    axes.add_patch(Rectangle((x - 0.5, y - 0.5), WINDOW, WINDOW, fill=False, edgecolor="C1"))
            if kind == "four":
                axes.set_title(f"frame {time}", fontsize=8)
        line[0].set_ylabel(kind, fontsize=9)
    return figure


def stream() -> Figure:
    x, total = adding.sequences(1, 50, 2, generator(0))
    values, marks = x[:, 0].T.numpy()
    figure = Figure((9, 2), dpi=80, layout="constrained")
    axes = figure.subplots()
    axes.bar(range(50), values, color=np.where(marks > 0, "C1", "lightgrey"))
    for time in np.flatnonzero(marks):
        axes.text(time, values[time], f"{values[time]:.2f}", ha="center", va="bottom", fontsize=8)
    axes.set(ylim=(0, 1.2), xlabel="step", title=f"answer at the last step: {total.item():.2f}")
    return figure


def sides(image) -> Figure:
    """Pixels as the network reads them, at the resolution of training and at those of the tests."""
    figure = Figure((8, 2.3), dpi=80, layout="constrained")
    for axes, side in zip(figure.subplots(1, 4), (14, 16, 19, 24), strict=True):
        show(axes, sequential_mnist.pixels(image, side).view(side, side))
        axes.set_title(f"{side} x {side}: {side**2} steps", fontsize=9)
    return figure


def moving(images) -> Figure:
    frames = moving_mnist.clips(images, 2, 1, 31, np.random.default_rng(0))[:, 0]
    figure = Figure((11, 1.5), dpi=80, layout="constrained")
    for axes, time in zip(figure.subplots(1, 11), range(0, 31, 3), strict=True):
        show(axes, frames[time])
        axes.set_title(f"frame {time}", fontsize=8)
    return figure


def show(axes, picture) -> None:
    axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1.5)
    axes.set(xticks=[], yticks=[])


if __name__ == "__main__":
    main()
