"""What tasks with frames share: the encoder and decoder of R-NEM (van Steenkiste et al., 2018), and rolling out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core import State

SIDE, FEATURES = 64, 512
DRAWN_EVERY = 4  # frames of the pictures


class VideoNetwork(nn.Module):
    """Predicts each next frame: frames `(T, B, 64, 64)` between 0 and 1 -> logits of the same shape, and the state."""

    def __init__(self, core: nn.Module, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.core = core
        self.encoder = encoder or _encoder()
        self.decoder = nn.Sequential(
            nn.Linear(core.output_size, FEATURES), nn.ELU(), nn.LayerNorm(FEATURES),  # type: ignore[arg-type]
            nn.Linear(FEATURES, 64 * 8 * 8), nn.ELU(), nn.LayerNorm(64 * 8 * 8), nn.Unflatten(1, (64, 8, 8)),
            Grow(64, 32), nn.ELU(), nn.GroupNorm(1, 32), Grow(32, 16), nn.ELU(), nn.GroupNorm(1, 16), Grow(16, 1),
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on CPUs

    def forward(self, frames: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        steps, batch = frames.shape[:2]
        features = self.encoder(frames.flatten(0, 1)).unflatten(0, (steps, batch))
        output, state = self.core(features, state)
        return self.decoder(output.flatten(0, 1)).unflatten(0, (steps, batch)).squeeze(2), state


class Grow(nn.Conv2d):
    """Twice the side: each pixel four times, then a convolution with a kernel of 4 x 4 (one row and column of zeros
    before, two after).

    Copies of a pixel meet sums of weights, so that the same comes of a convolution of the small image with a kernel of
    3 x 3 for each of the four places that a pixel turns into: half the work, and nothing large to copy.
    """

    sums: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4)
        even, odd = [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]]
        self.register_buffer("sums", torch.tensor([even, odd]).float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        weight = torch.einsum("oiyx,pay,qbx->opqiab", self.weight, self.sums, self.sums).flatten(0, 2)
        weight = weight.contiguous(memory_format=torch.channels_last)
        return F.pixel_shuffle(F.conv2d(x, weight, self.bias.repeat_interleave(4), padding=1), 2)


class StripEncoder(nn.Module):
    """One encoder for each horizontal strip; frames `(B, 64, 64)` -> elements `(B, strips, 512)`."""

    masks: Tensor

    def __init__(self, strips: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(_encoder() for _ in range(strips))
        rows = torch.arange(SIDE).tensor_split(strips)
        masks = torch.stack([torch.isin(torch.arange(SIDE), own).float() for own in rows])
        self.register_buffer("masks", masks.view(strips, 1, SIDE, 1))

    def forward(self, frames: Tensor) -> Tensor:
        return torch.stack([encode(frames * own) for encode, own in zip(self.encoders, self.masks, strict=True)], 1)


def roll_out(network: nn.Module, frames: Tensor, fed: int) -> Tensor:
    """Logits `(T - 1, B, 64, 64)` of all frames but the first: after ``fed`` true ones, it sees its own."""
    logits, state = network(frames[:fed])
    found = [logits]
    for _ in range(len(frames) - 1 - fed):
        logits, state = network(torch.sigmoid(logits[-1:]), state)
        found.append(logits)
    return torch.cat(found)


def frame_losses(logits: Tensor, frames: Tensor) -> Tensor:
    """Binary cross entropy of each frame, summed over its pixels: `(T, B)`."""
    return F.binary_cross_entropy_with_logits(logits, frames, reduction="none").sum((-2, -1))


def film(rows: dict[str, Tensor]) -> dict[str, Any]:
    """For the page, the first clip of each row `(T, B, 64, 64)`: every few frames at half the side, in 16 shades, as
    text of one letter for each pixel."""
    found = {}
    for name, frames in rows.items():
        small = F.avg_pool2d(frames[::DRAWN_EVERY, :1], 2).flatten(1)
        found[name] = ["".join(f"{round(15 * pixel):x}" for pixel in frame) for frame in small.tolist()]
    return {"every": DRAWN_EVERY, "film": found}


def _encoder() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE)),
        *_shrink(1, 16), *_shrink(16, 32), *_shrink(32, 64),
        nn.Flatten(), nn.Linear(64 * 8 * 8, FEATURES), nn.ELU(), nn.LayerNorm(FEATURES),
    )  # fmt: skip


def _shrink(inputs: int, outputs: int) -> list[nn.Module]:
    """Half the side. One group is layer norm over channels and positions."""
    return [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.ELU(), nn.GroupNorm(1, outputs)]
