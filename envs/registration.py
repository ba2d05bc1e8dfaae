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
