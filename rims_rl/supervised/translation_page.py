"""What the page of a task shows of translations: the corpora, sentences beside each other, and who attended to what."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from rims_rl.common.markdown import table
from rims_rl.common.rim_pictures import draw_raster
from rims_rl.supervised.training import diverged

Group = list[dict[str, Any]]  # the results of the seeds of one setting
PAPER = (
    "**This is not the paper's experiment.** The paper trained on WMT and tested on IWSLT 14, with networks and for as "
    "long as it does not say; what stands in a column `paper` is of that."
)


def corpora_section(groups: dict[str, Group]) -> list[str]:
    """What was read to learn from, and to be tested on."""
    read: dict[str, dict[str, Any]] = {}
    for group in groups.values():
        for result in group:
            read |= result["record"].get("corpora", {})
    if not read:
        return []
    config = next(iter(groups.values()))[0]["definition"]["config"]
    rows = []
    for pair, facts in sorted(read.items()):
        sums = [f"`{digest[:12]}`" for digest in facts["sha256"].values()]
        rows.append([pair, *(f"{count:,}" for count in facts["sentences"].values()), *sums])
    train, test = config["train"], config["test"]
    head = ["", f"{train}, training", f"{train}, held out", test, f"SHA-256 of {train}", f"of {test}"]
    return [
        f"## Corpora\n\n{PAPER} Here, `{train}` is the domain of training, `{test}` the other one. Pairs of sentences "
        f"that have at most {config['longest']} pieces of at most {config['vocabulary']:,} for a language; others are "
        "left out, in tests too. No sentence is both learned from and held out. Each test takes the first "
        f"{config['test_sequences']:,}. BLEU is sacrebleu's, of the likeliest piece at each step (no beam); cross "
        "entropy is per piece, in nats. Cores have about as many parameters, not the same width.\n\n"
        + table(head, rows)
    ]


def translations_section(groups: dict[str, Group]) -> list[str]:
    """The same sentences, by all settings."""
    shown = {label: sentences for label, group in groups.items() if (sentences := _sentences(group))}
    if not shown:
        return []
    parts = []
    for number, first in enumerate(next(iter(shown.values()))):
        rows = [["sentence", first["source"]], *([["reference", first["reference"]]] if "reference" in first else [])]
        rows += [[label, sentences[number]["translation"]] for label, sentences in shown.items()]
        texts = [[name, text.replace("|", "\\|")] for name, text in rows]
        parts.append(
            f"{'Of' if 'reference' in first else 'In the manner of'} the {first['domain']} domain:\n\n"
            + table(["", ""], texts)
        )
    return [
        "## Translations\n\nSentences that were never learned from, in the first seed that did not diverge.\n\n"
        + "\n\n".join(parts)
    ]


def draw_attention(recorded: dict[str, dict[str, Any]]) -> Figure:
    """A row for each setting, with one sentence of each domain; RIMs have three pictures of each."""
    drawn = {label: record["attention"] for label, record in recorded.items()}
    heights = [5.8 if "read" in sentences[0] else 2.8 for sentences in drawn.values()]
    figure = Figure(figsize=(12, sum(heights)), layout="constrained")
    rows = figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, (label, sentences) in zip(rows, drawn.items(), strict=True):
        row.suptitle(label, fontsize=10)
        for part, sentence in zip(row.subfigures(1, len(sentences), squeeze=False)[0], sentences, strict=True):
            _draw_sentence(part, sentence)
    return figure


def _sentences(group: Group) -> list[dict[str, Any]]:
    found = (result["record"].get("translations", []) for result in group if not diverged(result["curve"]))
    return next(found, [])


def _draw_sentence(figure: SubFigure, sentence: dict[str, Any]) -> None:
    source, said = sentence["source"], sentence["said"]
    if "read" not in sentence:
        _draw_weights(figure.subplots(), sentence["attention"], source, said)
    else:
        top, middle, bottom = figure.subplots(3, 1, height_ratios=[2, 3.6, 2])
        read = np.ma.masked_equal(_where(sentence["reading"], np.array(sentence["read"])), -1)
        top.imshow(read, "viridis", vmin=0, vmax=1, aspect="auto")
        _label(top, [""] * len(source), [f"RIM {k}" for k in range(len(read))], "encoder: what each RIM reads of it")
        _draw_weights(middle, sentence["attention"], source, said)
        draw_raster(bottom, _where(sentence["speaking"], np.ones((len(sentence["speaking"]), len(said)))).T > 0)
        bottom.set_xticks(np.arange(len(said)) + 0.5, said, rotation=60, fontsize=7, ha="right", rotation_mode="anchor")
        bottom.set_xlabel("")
        bottom.tick_params(axis="y", labelsize=7)
        bottom.set_title("decoder: who is active", fontsize=8)
    figure.suptitle(f"{sentence['domain']} domain", fontsize=8)


def _draw_weights(axes: Axes, attention: list[list[float]], source: list[str], said: list[str]) -> None:
    axes.imshow(np.array(attention), "Greys", vmin=0, vmax=1, aspect="auto")
    _label(axes, source, said, "decoder: what it attends to")


def _label(axes: Axes, columns: list[str], rows: list[str], title: str) -> None:
    axes.set_xticks(range(len(columns)), columns, rotation=60, fontsize=7, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows, fontsize=7 if len(rows) < 20 else 5)
    axes.set_title(title, fontsize=8)


def _where(active: list[str], values: np.ndarray) -> np.ndarray:
    """``values`` (K, T) where RIMs are active, -1 elsewhere."""
    return np.where([[step == "1" for step in rim] for rim in active], values, -1)
