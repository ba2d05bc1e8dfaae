"""What RIMs do, drawn beside each frame of a video."""

from __future__ import annotations

from collections import deque
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rims_rl.common.rim_pictures import rim_colours
from rims_rl.inspect.play import Step

PAGE, FAINT, MUTED, TEXT, GOOD, BAD = "#15171a", "#2a2e33", "#9aa0a8", "#e8e8e4", "#5fcf95", "#f0857d"
HEAT = (255, 60, 200)
HEIGHT, PANEL, MARGIN, LABEL, BARS = 420, 484, 14, 30, 126
STEPS = 72  # of the past that are shown, at 4 pixels each
CELL = 4


class Overlay:
    """Draws steps, each given after the one before.

    Args:
        labels: of :func:`rims_rl.inspect.play.describe`.
        frame: one of the video, for its size.
    """

    def __init__(self, labels: dict[str, Any], frame: np.ndarray) -> None:
        self._labels = labels
        self._colours = [
            "#" + "".join(f"{round(255 * part):02x}" for part in c) for c in rim_colours(labels["num_rims"])
        ]
        self._past: deque[Step] = deque(maxlen=STEPS)
        self._scale = max(1, round(HEIGHT / frame.shape[0]))
        self._game = (frame.shape[1] * self._scale, frame.shape[0] * self._scale)
        self.width, self.height = self._game[0] + PANEL, max(HEIGHT, self._game[1])
        self._font, self._small = ImageFont.load_default(16), ImageFont.load_default(12)
        self._number = -1

    def __call__(self, step: Step) -> np.ndarray:
        """The frame of this step: (height, width, 3) bytes."""
        self._number += 1
        self._past.append(step)
        picture = Image.new("RGB", (self.width, self.height), PAGE)
        game = Image.fromarray(np.ascontiguousarray(step.frame)).resize(self._game, Image.Resampling.NEAREST)
        if self._labels["grid"] is not None:
            game = _heated(game, step, self._labels["grid"])
        picture.paste(game, (0, (self.height - self._game[1]) // 2))
        draw = ImageDraw.Draw(picture)
        left = self._game[0] + MARGIN
        self._facts(draw, left, step)
        if step.mission is not None:
            draw.text((left, 46), step.mission, TEXT, self._font)
        top = self._rims(draw, left, 66 if step.mission is None else 92, step)
        self._value(draw, left, top + 14)
        return np.asarray(picture)

    def _facts(self, draw: ImageDraw.ImageDraw, left: int, step: Step) -> None:
        names = self._labels["action_names"]
        action = names[int(step.actions)].lower() if names and np.ndim(step.actions) == 0 else ""
        colour = TEXT if step.rewards == 0 else GOOD if step.rewards > 0 else BAD
        for at, label, text, shade in (
            (0, "step", f"{self._number:,}", TEXT),
            (80, "action", action, TEXT),
            (230, "reward", f"{step.rewards:+g}" if step.rewards else "0", colour),
            (LABEL + STEPS * CELL + 12, "value", f"{step.values:.2f}", TEXT),
        ):
            draw.text((left + at, 8), label, MUTED, self._small)
            draw.text((left + at, 23), text, shade, self._font)

    def _rims(self, draw: ImageDraw.ImageDraw, left: int, top: int, step: Step) -> int:
        """A row for each RIM: when it was active, and what it attends to now. Returns where the rows end."""
        count, bars = self._labels["num_rims"], left + LABEL + STEPS * CELL + 12
        row = min(28, (self.height - top - 110) // count)
        draw.text((left, top - 18), f"active RIMs, last {STEPS} steps", MUTED, self._small)
        draw.text((bars, top - 18), self._legend(), MUTED, self._small)
        for k in range(count):
            y, on = top + k * row, bool(step.active[k])
            draw.text((left + 4, y + row / 2 - 8), str(k), self._colours[k] if on else MUTED, self._font)
            for x, past in self._columns(left):
                shade = self._colours[k] if past.active[k] else FAINT
                draw.rectangle((x, y + 1, x + CELL - 1, y + row - 2), shade)
            self._attention(draw, bars, y + 1, row - 3, step.input_attention[k], self._colours[k], on)
        for x, past in self._columns(left):
            if past.episode_starts:
                draw.line((x, top, x, top + count * row), TEXT)
        return top + count * row

    def _legend(self) -> str:
        elements = self._labels["elements"]
        if (grid := self._labels["grid"]) is not None:
            elements = ["input", *elements[grid["rows"] * grid["columns"] :]]
        return "attends to input" if len(elements) == 1 else " | ".join([*elements, "null"])

    def _attention(
        self, draw: ImageDraw.ImageDraw, left: int, top: int, height: int, shares: np.ndarray, colour: str, on: bool
    ) -> None:
        """Side by side what it attends to; null is dark, and all of it is only outlined where the RIM reads nothing."""
        parts = shares[:-1]
        if (grid := self._labels["grid"]) is not None:  # all positions as one
            positions = grid["rows"] * grid["columns"]
            parts = np.append(parts[:positions].sum(), parts[positions:])
        draw.rectangle((left, top, left + BARS, top + height), FAINT)
        x = float(left)
        for part in parts:
            end = x + BARS * float(part)
            draw.rectangle((x, top, end, top + height), colour if on else None, PAGE if on else MUTED)
            x = end

    def _value(self, draw: ImageDraw.ImageDraw, left: int, top: int) -> None:
        bottom = self.height - 12
        draw.text((left, top - 4), "value", MUTED, self._small)
        top += 14
        values = [float(past.values) for past in self._past]
        low, high = min(values), max(values)
        draw.rectangle((left + LABEL, top, left + LABEL + STEPS * CELL - 1, bottom), FAINT)
        points: list[tuple[float, float]] = []
        for x, past in self._columns(left):
            if past.rewards:
                draw.rectangle((x, top, x + CELL - 1, bottom), GOOD if past.rewards > 0 else BAD)
            if past.episode_starts:
                draw.line(points, TEXT, 2)
                points = []
            share = (float(past.values) - low) / (high - low) if high > low else 0.5
            points.append((x + CELL / 2, bottom - 4 - share * (bottom - top - 8)))
        draw.line(points, TEXT, 2)
        right = left + LABEL + STEPS * CELL + 8
        draw.text((right, top - 2), f"{high:.2f}", MUTED, self._small)
        draw.text((right, bottom - 14), f"{low:.2f}", MUTED, self._small)

    def _columns(self, left: int) -> list[tuple[int, Step]]:
        """Where each step of the past is; now is at the right."""
        first = left + LABEL + (STEPS - len(self._past)) * CELL
        return [(first + i * CELL, past) for i, past in enumerate(self._past)]


def _heated(game: Image.Image, step: Step, grid: dict[str, Any]) -> Image.Image:
    """What active RIMs attend to, on average, over the game. Four times an even share, or more, is the full colour."""
    positions = grid["rows"] * grid["columns"]
    shares = step.input_attention[step.active, :positions].mean(0).reshape(grid["rows"], grid["columns"])
    strength = np.minimum(shares * shares.size / 4, 1).astype(np.float32)
    # position (y, x) is drawn in the middle of the part of the picture that it sees
    (pitch_y, pitch_x), (field_y, field_x) = grid["pitch"], grid["field"]
    height, width = game.height, game.width
    at_y = ((np.arange(height) + 0.5) / height - field_y / 2) / pitch_y
    at_x = ((np.arange(width) + 0.5) / width - field_x / 2) / pitch_x
    map_x, map_y = np.meshgrid(at_x.astype(np.float32), at_y.astype(np.float32))
    alpha = 0.7 * cv2.remap(strength, map_x, map_y, cv2.INTER_LINEAR)
    mixed = np.asarray(game) * (1 - alpha[..., None]) + np.array(HEAT) * alpha[..., None]
    return Image.fromarray(mixed.astype(np.uint8))
