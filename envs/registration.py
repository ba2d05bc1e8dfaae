"""Our own environments, for Gymnasium's registry. Importing ``rims_rl.envs`` registers them."""

from __future__ import annotations

from itertools import product

from gymnasium.envs.registration import register

SHAPES, COLOURS = ("key", "ball"), ("red", "green", "blue", "grey")
KNOWN = list(product(SHAPES, COLOURS))

NOVEL_COLOUR = {"distractors": list(product(SHAPES, ("purple", "yellow")))}
NOVEL_SHAPE = {"distractors": list(product(("box",), COLOURS))}
MORE = {"num_distractors": 4}
PICKUPS = {
    "Known": {},
    "NovelColour": NOVEL_COLOUR,
    "NovelShape": NOVEL_SHAPE,
    "NewColour": {"distractors": list(product(SHAPES, ("cyan",)))},
    "NewShape": {"distractors": list(product(("star",), COLOURS))},
    "More": MORE,
    "MoreNovelColour": NOVEL_COLOUR | MORE,
    "MoreNovelShape": NOVEL_SHAPE | MORE,
    "ControlColour": {"unlike": "colour"},
    "ControlShape": {"unlike": "shape"},
}

for variant, options in PICKUPS.items():
    register(
        id=f"RimsRL/Pickup-{variant}-v0",
        entry_point="rims_rl.envs.pickup.pickup:Pickup",
        kwargs={"targets": KNOWN, **options},  # type: ignore[dict-item]
    )

# Tokens of the recall task: 4 that are cues too, 8 that are distractors only, and 8 that training never shows.
CUES, OTHERS, NOVEL = list(range(4)), list(range(4, 12)), list(range(12, 20))
LOUD = {"loudness": 3.0}
RECALLS = {
    "": {},
    "Long50": {"delay": (50, 50)},
    "Long100": {"delay": (100, 100)},
    "Long400": {"delay": (400, 400)},
    "Novel": {"distractors": NOVEL},
    "Loud": LOUD,
    "NovelLoud": {"distractors": NOVEL, **LOUD},
    "Control": {"distractors": OTHERS},
    "ControlLoud": {"distractors": OTHERS, **LOUD},
}

for variant, options in RECALLS.items():
    register(
        id=f"RimsRL/Recall-{variant}-v0" if variant else "RimsRL/Recall-v0",
        entry_point="rims_rl.envs.recall.recall:Recall",
        kwargs={"distractors": CUES + OTHERS, **options},  # type: ignore[dict-item]
    )
