"""Cores that are stepped in Python: layers of a cell whose state has several parts, packed into two tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.core import State
from rims_rl.core.memories.baselines import Baseline

Parts = dict[str, Tensor]


class Cell(nn.Module):
    """One step of one layer.

    Attributes:
        input_size, output_size: widths of what goes in and comes out.
        shapes: the parts of the state, each with its shape without the batch.
    """

    def __init__(self, input_size: int, output_size: int, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.input_size, self.output_size, self.shapes = input_size, output_size, shapes

    def start(self) -> Parts:
        """The parts of a fresh state that are not zero."""
        return {}

    @abstractmethod
    def step(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        """``x`` `(B, input_size)` and the parts -> output `(B, output_size)` and the new parts."""


class Stepped(Baseline):
    """Layers of cells; layer l > 1 reads the output of the layer below.

    All parts of a cell's state are laid end to end, less what a fresh state has there, and cut in two: so zeros are a
    fresh state, as for every core, and ``hidden_size`` is the width of one half.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        sizes = {sum(map(prod, cell.shapes.values())) for cell in cells}
        super().__init__(cells[0].input_size, (max(sizes) + 1) // 2, len(cells), cells[-1].output_size)
        self.layers = nn.ModuleList(cells)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        packed = []
        for layer, h, c in zip(self.layers, *state, strict=True):
            parts, outputs = _unpack(layer, torch.cat([h, c], -1)), []  # type: ignore[arg-type]
            for x_t in x.unbind(0):
                output, parts = layer.step(x_t, parts)  # type: ignore[operator]
                outputs.append(output)
            x = torch.stack(outputs)
            packed.append(_pack(layer, parts, 2 * self.hidden_size))  # type: ignore[arg-type]
        h, c = torch.stack(packed).chunk(2, -1)
        return x, (h, c)


def _unpack(cell: Cell, flat: Tensor) -> Parts:
    sizes = [prod(shape) for shape in cell.shapes.values()]
    pieces = flat.split([*sizes, flat.shape[-1] - sum(sizes)], -1)
    fresh = cell.start()
    return {
        name: piece.unflatten(-1, shape) + fresh.get(name, 0.0)
        for (name, shape), piece in zip(cell.shapes.items(), pieces, strict=False)
    }


def _pack(cell: Cell, parts: Parts, width: int) -> Tensor:
    fresh = cell.start()
    flat = torch.cat([(parts[name] - fresh.get(name, 0.0)).flatten(1) for name in cell.shapes], -1)
    return F.pad(flat, (0, width - flat.shape[-1]))
