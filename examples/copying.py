"""Train a small RIM to copy four digits across a gap, then look at which RIMs were active when. About a minute.

::

            digits   blank                recall
    input   3 1 4 1  0 0 0 0 0 0 0 0 0 0  9 0 0 0 0
    output                                  3 1 4 1

Training sees a blank span of 10 steps only. A memory that has understood the task does not mind a longer one.
"""

import argparse
import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure  # without pyplot: draws with Agg, to a file, and never opens a window
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from rims_rl import RIM

DIGITS, MARKER = 4, 9  # digits are 1 to 8, 0 is blank
TRAIN_SPAN, TEST_SPANS, DRAWN_SPAN = 10, (10, 20, 40, 100), 20
EMBEDDING, HIDDEN, NUM_RIMS, NUM_ACTIVE = 16, 96, 6, 4
LEARNED = 0.99  # accuracy on new sequences at which training stops
COLOURS = {"digits": "#1b9e77", "blank": "#7570b3", "recall": "#d95f02"}  # readable on black and on white


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)  # for tensors this small, a second thread costs more than it brings
    torch.manual_seed(args.seed)
    console = Console(highlight=False)
    console.print(
        f"\nRemember {DIGITS} digits over {TRAIN_SPAN} blank steps. Two memories of {HIDDEN} units learn to:\n"
        f"{NUM_RIMS} RIMs, {NUM_ACTIVE} of them active at each step, and an LSTM. Each stops at {LEARNED:.0%} right.\n"
    )
    # Less attention than by default is enough here, and brings the RIM near the LSTM in weights: 48,000 to 44,000.
    sizes = {"input_key_size": 32, "comm_heads": 2, "comm_key_size": 16, "comm_value_size": 16}
    rim = Copier(RIM(EMBEDDING, HIDDEN, NUM_RIMS, NUM_ACTIVE, **sizes))
    models = {"RIM": rim, "LSTM": Copier(nn.LSTM(EMBEDDING, HIDDEN))}
    with progress_bars(console) as progress:
        for name, model in models.items():
            train(model, args.budget, progress, name)
    console.print("", compare(models))

    steps = record(rim, DRAWN_SPAN)
    console.print("", draw(steps), sep="\n")
    save_figure(steps, args.out)
    console.print(f"\nThe same as a figure: {args.out}", soft_wrap=True)


class Copier(nn.Module):
    """Embedding, a recurrent core with the call of nn.LSTM, and a linear layer over blank and the eight digits."""

    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(MARKER + 1, EMBEDDING)
        self.core = core
        self.head = nn.Linear(HIDDEN, MARKER)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.core(self.embedding(x))  # (T, B) -> (T, B, HIDDEN)
        return self.head(output[-DIGITS:])  # (DIGITS, B, MARKER), the answer


def sequences(count: int, span: int) -> tuple[Tensor, Tensor]:
    """New inputs (T, count), and the digits (DIGITS, count) to give back in the last steps."""
    digits = torch.randint(1, MARKER, (DIGITS, count))
    x = F.pad(digits, (0, 0, 0, span + 1 + DIGITS))
    x[DIGITS + span] = MARKER
    return x, digits


def train(model: Copier, budget: int, progress: Progress, name: str) -> None:
    """Adam on new sequences until the digits come back right, or for ``budget`` iterations."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    right = accuracy(model, TRAIN_SPAN)
    bar = progress.add_task(name, total=budget, loss=math.nan, right=right, rate=0.0, status="at most")
    for iteration in range(1, budget + 1):
        x, digits = sequences(64, TRAIN_SPAN)
        loss = F.cross_entropy(model(x).flatten(0, 1), digits.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if iteration % 50 == 0 or iteration == budget:
            right = accuracy(model, TRAIN_SPAN)
        rate = iteration / (progress.tasks[bar].elapsed or 1.0)
        progress.update(bar, completed=iteration, loss=loss.item(), right=right, rate=rate)
        if right >= LEARNED:
            break
    progress.update(bar, total=iteration, status="learned in" if right >= LEARNED else "NOT learned in")


@torch.no_grad()
def accuracy(model: Copier, span: int) -> float:
    """Share of 1,000 digits, in 250 new sequences, that come back right."""
    x, digits = sequences(1000 // DIGITS, span)
    return (model(x).argmax(-1) == digits).float().mean().item()


def compare(models: dict[str, Copier]) -> Table:
    table = Table(title="Digits right, by blank span", title_justify="left", caption_justify="left")
    table.caption = "1,000 new digits for each number; guessing gives 0.125.\n"
    table.caption += "One seed, settings chosen for the RIM: not a benchmark."
    table.add_column()
    for span in TEST_SPANS:
        table.add_column(f"{span} (trained)" if span == TRAIN_SPAN else f"{span}", justify="right", min_width=9)
    for name, model in models.items():
        table.add_row(name, *(f"{accuracy(model, span):.3f}" for span in TEST_SPANS))
    return table


def progress_bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:4}"),
        BarColumn(16),
        TextColumn("loss {task.fields[loss]:.3f}  accuracy {task.fields[right]:.3f}  {task.fields[rate]:3.0f}/s"),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console,
    )


class Step(NamedTuple):
    phase: str
    input: str
    output: str  # empty before the recall, with an exclamation mark if wrong
    active: list[bool]  # of each RIM


@torch.no_grad()
def record(model: Copier, span: int) -> list[Step]:
    """What goes in, what comes out and who is active, in one new sequence."""
    x, digits = sequences(1, span)
    with model.core.trace() as trace:
        answer = model(x).argmax(-1)
    phases = ["digits"] * DIGITS + ["blank"] * span + ["recall"] * (1 + DIGITS)
    marks = ["" if right else "!" for right in (answer == digits)[:, 0]]
    outputs = [""] * (DIGITS + span + 1) + [f"{digit}{mark}" for digit, mark in zip(answer[:, 0], marks, strict=True)]
    inputs = [str(digit or "·") for digit in x[:, 0].tolist()]
    return [Step(*step) for step in zip(phases, inputs, outputs, trace.active[:, 0].tolist(), strict=True)]


def draw(steps: list[Step]) -> Text:
    """The activation pattern for the terminal, two characters wide for each step."""
    phases = [step.phase for step in steps]
    text = Text().append(f"Who is active, in a new sequence with {phases.count('blank')} blank steps\n\n", "italic")
    text.append(" " * 8)
    for phase, colour in COLOURS.items():
        text.append(phase.ljust(2 * phases.count(phase)), f"bold {colour}")
    text.append("\ninput   ")
    for step in steps:
        text.append(step.input.ljust(2), COLOURS[step.phase])
    text.append("\noutput  ")
    for step in steps:
        text.append(step.output.ljust(2), COLOURS[step.phase])
    for k in range(NUM_RIMS):
        text.append(f"\nRIM {k}   ")
        for step in steps:
            text.append("▆▆" if step.active[k] else "· ", COLOURS[step.phase] if step.active[k] else "dim")
    asleep = [str(k) for k in range(NUM_RIMS) if not any(step.active[k] for step in steps if step.phase == "blank")]
    text.append(f"\n\nNever active in the blank span: RIM {' and '.join(asleep)}." if asleep else "\n")
    return text.append("\nA RIM that is not active keeps its state exactly, however long that lasts.")


def save_figure(steps: list[Step], out: Path) -> None:
    """The activation pattern in the manner of the paper's figure 2: time to the right, active cells dark."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    active = torch.tensor([step.active for step in steps]).T  # (NUM_RIMS, T)
    axes.pcolormesh(active, cmap="Greys", vmin=-0.12, vmax=1.15, edgecolors="white", linewidth=1.5)
    for t, step in enumerate(steps):
        axes.text(t + 0.5, -1.25, step.input, ha="center", va="center", color=COLOURS[step.phase])
        axes.text(t + 0.5, -0.5, step.output, ha="center", va="center", color=COLOURS[step.phase])
    for phase, colour in COLOURS.items():
        inside = [t for t, step in enumerate(steps) if step.phase == phase]
        first, end = inside[0], inside[-1] + 1
        axes.plot([first + 0.1, end - 0.1], [-1.9, -1.9], color=colour, linewidth=3, solid_capstyle="butt")
        axes.text((first + end) / 2, -2.15, phase, ha="center", va="bottom", color=colour, weight="bold")
    axes.set(xlim=(0, len(steps)), ylim=(NUM_RIMS, -2.9), xlabel="time step")
    axes.set_xticks([t + 0.5 for t in range(0, len(steps), 4)], range(0, len(steps), 4))
    rows = {-1.25: "input", -0.5: "output"} | {k + 0.5: f"RIM {k}" for k in range(NUM_RIMS)}
    axes.set_yticks(list(rows), rows.values())
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    temporary = out.with_name(f".{out.name}.tmp")
    figure.savefig(temporary, format="png", dpi=160)
    temporary.replace(out)  # whole or not at all


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of weights and sequences (default: %(default)s)")
    parser.add_argument("--out", type=Path, default="copying_activation.png", help="figure (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=2500, help="most training iterations (default: %(default)s)")
    args = parser.parse_args()
    if args.budget < 1:
        parser.error(f"--budget must be at least 1, got {args.budget}")
    if args.out.is_dir() or not os.access(args.out.parent, os.W_OK):  # now, not after a minute of training
        parser.error(f"--out must be a file name in a folder that can be written, got {args.out}")
    return args


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
