"""Picking up the object that the mission names, among others: the paper's task with novel distractors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import spaces
from minigrid.core.constants import COLOR_NAMES, COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.core.mission import MissionSpace
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import ObjDesc, PickupInstr

from rims_rl.envs.minigrid.new_objects import SHAPES
from rims_rl.envs.minigrid.view import symbolic_view

Pair = Sequence[str]  # a shape and a colour, such as ("key", "red")
TARGET_SHAPES = ("key", "ball")  # never a box, which BabyAI's toggle action would delete
ALIKE = {"shape": 0, "colour": 1}  # what `unlike` names -> where it is in a pair


class Pickup(RoomGridLevel):
    """
    ## Description

    The agent is in one room with the object that the mission names, the target, and others, the distractors. It sees
    only the cells before it, as far as its view reaches. It has to pick up the target; picking up anything else ends
    the episode. In the variants for testing, the targets are those of training, and only the distractors are new.

    ## Mission Space

    "pick up the {color} {type}"

    {color} is the color of the target. Can be "red", "green", "blue" or "grey".

    {type} is the shape of the target. Can be "key" or "ball".

    ## Action Space

    | Num | Name    | Action                              |
    |-----|---------|-------------------------------------|
    | 0   | left    | Turn left                           |
    | 1   | right   | Turn right                          |
    | 2   | forward | Move forward                        |
    | 3   | pickup  | Pick up the object in front         |
    | 4   | drop    | Drop it; only with `strict=False`   |

    ## Observation Encoding

    - Each tile is encoded as a 3 dimensional tuple: `(OBJECT_IDX, COLOR_IDX, STATE)`
    - `OBJECT_TO_IDX` and `COLOR_TO_IDX` are Minigrid's, with "star" as 11 and "cyan" as 6 besides
    - `STATE` is always 0: there are no doors

    ## Rewards

    A reward of '1 - 0.9 * (step_count / max_steps)' is given for success, and '0' for failure.

    ## Termination

    The episode ends if any one of the following conditions is met:

    1. The agent picks up the target: `info["outcome"]` is "success".
    2. The agent picks up a distractor, with `strict=True`: "wrong pick".
    3. Timeout (see `max_steps`): "time-out". Only this is a truncation.

    `info["is_success"]` is there too at the end of an episode.

    ## Registered Configurations

    `RimsRL/Pickup-{variant}-v0`. Two distractors, unless the variant is called More.

    | variant           | distractors                                               |
    |-------------------|-----------------------------------------------------------|
    | `Known`           | like the targets: this one is for training                |
    | `NovelColour`     | purple and yellow keys and balls                          |
    | `NovelShape`      | boxes in the colours of the targets                       |
    | `NewColour`       | cyan keys and balls; Minigrid has no cyan                 |
    | `NewShape`        | stars in the colours of the targets; Minigrid has no star |
    | `More`            | four, known                                               |
    | `MoreNovelColour` | four, purple and yellow keys and balls                    |
    | `MoreNovelShape`  | four boxes                                                |
    | `ControlColour`   | known, but never of the target's colour                   |
    | `ControlShape`    | known, but never of the target's shape                    |

    ## Arguments

    * `targets`: pairs of a shape and a color, from which the target is drawn
    * `distractors`: pairs from which distractors are drawn, none of them a target. `None`: other objects of `targets`
    * `num_distractors=2`: each is drawn by itself, so that two may be alike
    * `unlike=None`: "colour" or "shape", in which every distractor differs from the target
    * `room_size=6`: with its walls
    * `view=5`: how many cells the agent sees ahead, itself included, and how many across
    * `strict=True`: whether a wrong pick ends the episode
    * `max_steps=None`: `room_size` squared
    """

    def __init__(
        self,
        targets: Sequence[Pair],
        distractors: Sequence[Pair] | None = None,
        num_distractors: int = 2,
        unlike: str | None = None,
        room_size: int = 6,
        view: int = 5,
        strict: bool = True,
        max_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.targets = [_pair(pair, TARGET_SHAPES, COLOR_NAMES, "targets") for pair in targets]
        self.distractors = self.targets
        if distractors is not None:
            self.distractors = [_pair(pair, SHAPES, COLOR_TO_IDX, "distractors") for pair in distractors]
        self.num_distractors, self.unlike, self.strict = num_distractors, unlike, strict
        self._check(room_size, view, distractors is not None)
        super().__init__(
            room_size=room_size, num_rows=1, num_cols=1, agent_view_size=view, max_steps=max_steps, **kwargs
        )
        self.action_space = spaces.Discrete(4 if strict else 5)
        colours, shapes = sorted({colour for _, colour in self.targets}), sorted({shape for shape, _ in self.targets})
        mission = MissionSpace(lambda color, type: f"pick up the {color} {type}", [colours, shapes])
        observation: Any = self.observation_space
        self.observation_space = spaces.Dict({**observation.spaces, "mission": mission})

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments as they are in force now, for result files."""
        return {
            "targets": self.targets,
            "distractors": self.distractors,
            "num_distractors": self.num_distractors,
            "unlike": self.unlike,
            "room_size": self.room_size,
            "view": self.agent_view_size,
            "strict": self.strict,
            "max_steps": self.max_steps,
        }

    def objects_in_view(self) -> tuple[bool, bool]:
        """Whether the agent sees the target, and whether it sees a distractor."""
        codes = {OBJECT_TO_IDX[shape] for shape in SHAPES}
        seen = {(shape, colour) for shape, colour, _ in symbolic_view(self).reshape(-1, 3).tolist() if shape in codes}
        target = OBJECT_TO_IDX[self.instrs.desc.type], COLOR_TO_IDX[self.instrs.desc.color]
        return target in seen, bool(seen - {target})

    def gen_mission(self) -> None:
        """Called by BabyAI when the room is there."""
        shape, colour = target = self._rand_elem(self.targets)
        candidates = self._candidates(target)
        pairs = [target, *(self._rand_elem(candidates) for _ in range(self.num_distractors))]
        while True:
            self.agent_pos = (-1, -1)  # or BabyAI would keep the middle of the room free
            objects = [self.place_in_room(0, 0, SHAPES[shape](colour))[0] for shape, colour in pairs]
            self.place_agent(0, 0)
            if self.check_objs_reachable(raise_exc=False):
                break
            for each in objects:
                assert each.cur_pos is not None
                self.grid.set(*each.cur_pos, None)
            self.get_room(0, 0).objs.clear()
        self.instrs = PickupInstr(ObjDesc(shape, colour), strict=self.strict)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            success = terminated and reward > 0
            info["outcome"] = "success" if success else "wrong pick" if terminated else "time-out"
            info["is_success"] = success
        return observation, float(reward), terminated, truncated and not terminated, info

    def _candidates(self, target: tuple[str, str]) -> list[tuple[str, str]]:
        """What may lie beside this target."""
        if self.unlike is None:
            return [pair for pair in self.distractors if pair != target]
        part = ALIKE[self.unlike]
        return [pair for pair in self.distractors if pair[part] != target[part]]

    def _check(self, room_size: int, view: int, novel: bool) -> None:
        for name, pairs in (("targets", self.targets), ("distractors", self.distractors)):
            if not pairs:
                raise ValueError(f"{name} must hold at least one pair such as ('key', 'red'), got none")
        if novel and (common := set(self.targets) & set(self.distractors)):
            raise ValueError(
                f"distractors must not be targets, but {min(common)} is in both; leave distractors out for known ones"
            )
        if self.unlike is not None and self.unlike not in ALIKE:
            raise ValueError(f"unlike must be 'colour', 'shape' or None, got {self.unlike!r}")
        if self.num_distractors < 0:
            raise ValueError(f"num_distractors must be at least 0, got {self.num_distractors}")
        if room_size < 4 or view < 3 or view % 2 == 0:
            raise ValueError(
                f"room_size must be at least 4 and view an odd number from 3, got room_size={room_size}, view={view}"
            )
        fitting = (room_size - 2) ** 2 // 2  # more would leave the agent no way to the target
        if 1 + self.num_distractors > fitting:
            raise ValueError(
                f"a room of size {room_size} holds a target and at most {fitting - 1} distractors, "
                f"got num_distractors={self.num_distractors}"
            )
        for target in self.targets:
            if self.num_distractors and not self._candidates(target):
                what = "object" if self.unlike is None else f"object of another {self.unlike}"
                raise ValueError(f"distractors holds no {what} to put beside the target {target}")


def _pair(pair: Pair, shapes: Any, colours: Any, name: str) -> tuple[str, str]:
    """A checked pair. Of a JSON file it may be a list."""
    if len(pair) != 2 or pair[0] not in shapes or pair[1] not in colours:
        raise ValueError(
            f"{name} must be pairs of a shape ({', '.join(shapes)}) and a color ({', '.join(colours)}), got {pair!r}"
        )
    return pair[0], pair[1]
