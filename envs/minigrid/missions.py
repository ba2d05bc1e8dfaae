"""MiniGrid's missions as small integers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from minigrid.core.mission import MissionSpace
from minigrid.envs.babyai.core.roomgrid_level import BabyAIMissionSpace
from minigrid.minigrid_env import MiniGridEnv

# Every word of the missions of Minigrid 3.2, BabyAI included. Word i is the number i + 1, and 0 is no word. Saved
# policies depend on the order: a new word goes to the end.
WORDS = (
    "a after and at avoid ball behind blue box door end fetch find from front get go goal green grey hallway in key "
    "lava left matching maze must near next object of on open opening pick purple put reach red right room rooms "
    "square the then to traverse unlock up use yellow you your"
)
VOCABULARY = WORDS.split()
NUMBERS = {word: number for number, word in enumerate(VOCABULARY, 1)}


def encode_mission(mission: str, length: int, numbers: dict[str, int] = NUMBERS) -> np.ndarray:
    """The numbers of the mission's words, with zeros after them. Commas are left out."""
    words = _words(mission)
    if unknown := [word for word in words if word not in numbers]:
        known = " ".join(numbers)
        raise ValueError(f"the mission {mission!r} has the unknown word {unknown[0]!r}; the words are {known}")
    if len(words) > length:
        raise ValueError(f"the mission {mission!r} has {len(words)} words, and there is room for {length}")
    return np.array([numbers[word] for word in words] + [0] * (length - len(words)), np.uint8)


def mission_words(env: MiniGridEnv) -> dict[str, int]:
    """The number of each word: Minigrid's, and those that only missions of this environment have after them."""
    observation: Any = env.observation_space
    space = observation["mission"]
    if isinstance(space, BabyAIMissionSpace) or not isinstance(space, MissionSpace):
        return NUMBERS
    choices = space.ordered_placeholders or []
    texts = [space.mission_func(*(choice[0] for choice in choices)), *(text for choice in choices for text in choice)]
    new = sorted({word for text in texts for word in _words(text)} - set(NUMBERS))
    return NUMBERS | {word: number for number, word in enumerate(new, len(NUMBERS) + 1)}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\s,]+", text.lower())


def mission_length(env: MiniGridEnv) -> int:
    """How many words the environment's missions have at most."""
    observation: Any = env.observation_space
    space = observation["mission"]
    if isinstance(space, BabyAIMissionSpace):  # does not know its missions
        # A sentence has up to 16 words, when it tells where two objects are, and such levels join up to four of them.
        # Other levels have one sentence, or two that do not tell it.
        return 68 if len(getattr(env, "instr_kinds", ())) > 1 else 24
    assert isinstance(space, MissionSpace)
    longest = [max(choices, key=lambda text: len(text.split())) for choices in space.ordered_placeholders or ()]
    return len(_words(space.mission_func(*longest)))
