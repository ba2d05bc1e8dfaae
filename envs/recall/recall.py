"""Keeping a cue in memory while there are things to see that do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

KINDS = ("cue", "distractor", "question")
NUM_CUES = 4
NUM_TOKENS = 20  # of which the first are the cues
LOUDEST = 10.0

# What is seen in a step is one number here, its code: a cue, NUM_CUES + the token of a distractor, or the question.
QUESTION = NUM_CUES + NUM_TOKENS

PIXELS = 8  # of each number of an observation, when drawn
STEPS_SHOWN = 32


class Recall(gym.Env[np.ndarray, np.int64]):
    """
    ## Description

    The agent is shown a cue, then for some steps distractors, which do not matter, then a question: which cue was it?
    Every step shows one token. In training, a third of the distractors are the tokens of the cues, and only the kind
    of step tells them apart. In the variants for testing, the stretch of distractors is longer, or they are new, or
    louder.

    ## Mission Space

    There is no mission: the task is always the same.

    ## Action Space

    | Num    | Name   | Action                             |
    |--------|--------|------------------------------------|
    | 0 to 3 | answer | The cue was this one               |

    Only the answer to the question counts. Before it, actions do nothing.

    ## Observation Encoding

    A vector of 23 numbers, which are 0 but for these:

    - numbers 0 to 2: a 1 says what kind of step it is, a cue, a distractor or the question
    - numbers 3 to 22: a 1 says which token is shown; that of a distractor is multiplied by `loudness`. The question
      shows none

    Of the 20 tokens, the first 4 are the cues, the next 8 are shown in training as distractors only, and the last 8
    only in the variants called Novel.

    ## Rewards

    A reward of '1' is given for the right answer, and '0' for a wrong one and for all steps before.

    ## Termination

    The episode ends with the answer: `info["outcome"]` is "success" or "wrong answer". `info["is_success"]` is there
    too. There is no time limit: an episode has two steps more than distractors.

    ## Registered Configurations

    `RimsRL/Recall-v0` is for training. All others are `RimsRL/Recall-{variant}-v0`.

    | variant       | number of distractors | their tokens                                       | loudness |
    |---------------|-----------------------|----------------------------------------------------|----------|
    | (none)        | 5 to 20               | those of the cues, and 8 others                    | 1        |
    | `Long50`      | 50                    | the same                                           | 1        |
    | `Long100`     | 100                   | the same                                           | 1        |
    | `Long400`     | 400                   | the same                                           | 1        |
    | `Novel`       | 5 to 20               | 8 that are never shown in training                 | 1        |
    | `Loud`        | 5 to 20               | those of the cues, and 8 others                    | 3        |
    | `NovelLoud`   | 5 to 20               | 8 that are never shown in training                 | 3        |
    | `Control`     | 5 to 20               | the 8 others of training: like Novel, never a cue's | 1        |
    | `ControlLoud` | 5 to 20               | the 8 others of training                           | 3        |

    ## Arguments

    * `distractors`: the tokens from which distractors are drawn, each by itself
    * `delay=(5, 20)`: how many distractors there are at least and at most
    * `loudness=1.0`: by what the tokens of distractors are multiplied
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012  as in all environments of Gymnasium

    def __init__(
        self,
        distractors: Sequence[int],
        delay: Sequence[int] = (5, 20),
        loudness: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        if not len(distractors) or not set(distractors) <= set(range(NUM_TOKENS)):
            raise ValueError(f"distractors must be tokens from 0 to {NUM_TOKENS - 1}, got {list(distractors)}")
        if len(delay) != 2 or not 0 <= delay[0] <= delay[1]:
            raise ValueError(f"delay must be the least and the largest number of distractors, got {tuple(delay)}")
        if not 0 < loudness <= LOUDEST:
            raise ValueError(f"loudness must be above 0 and at most {LOUDEST:g}, got {loudness}")
        self.distractors, self.delay, self.loudness = np.array(distractors), tuple(delay), float(loudness)
        self.render_mode = render_mode
        self.table = _table(self.loudness)
        # the same for every loudness, so that a policy fits all variants
        self.observation_space = spaces.Box(0.0, LOUDEST, self.table.shape[1:], np.float32)
        self.action_space = spaces.Discrete(NUM_CUES)
        self.codes = np.array([QUESTION])  # of all steps of the episode
        self.step_count = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments as they are in force now, for result files."""
        return {"distractors": self.distractors.tolist(), "delay": list(self.delay), "loudness": self.loudness}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        cue = self.np_random.integers(NUM_CUES)
        delay = self.np_random.integers(self.delay[0], self.delay[1] + 1)
        tokens = self.distractors[self.np_random.integers(len(self.distractors), size=delay)]
        self.codes = np.concatenate([[cue], NUM_CUES + tokens, [QUESTION]])
        self.step_count = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.codes[self.step_count] != QUESTION:
            self.step_count += 1
            return self._observation(), 0.0, False, False, {}
        success = bool(action == self.codes[0])
        return self._observation(), float(success), True, False, ending(success)

    def render(self) -> np.ndarray | None:
        """The last steps from left to right: of each, its observation from top to bottom, white where it is 0."""
        if self.render_mode != "rgb_array":
            return None
        seen = self.table[self.codes[max(0, self.step_count + 1 - STEPS_SHOWN) : self.step_count + 1]]
        shown = np.zeros((STEPS_SHOWN, self.table.shape[1]))
        shown[: len(seen)] = seen / self.table.max()
        grey = (255 * (1 - shown.T)).astype(np.uint8).repeat(PIXELS, 0).repeat(PIXELS, 1)
        return np.stack([grey] * 3, 2)

    def _observation(self) -> np.ndarray:
        return self.table[self.codes[self.step_count]].copy()


def ending(success: bool) -> dict[str, Any]:
    """What is said at the end of an episode."""
    return {"outcome": "success" if success else "wrong answer", "is_success": success}


def _table(loudness: float) -> np.ndarray:
    """What each code looks like: (codes, numbers of an observation)."""
    kinds = np.repeat(np.eye(len(KINDS)), [NUM_CUES, NUM_TOKENS, 1], 0)
    tokens = np.eye(NUM_TOKENS)
    tokens = np.concatenate([tokens[:NUM_CUES], loudness * tokens, np.zeros((1, NUM_TOKENS))])
    return np.concatenate([kinds, tokens], 1).astype(np.float32)
