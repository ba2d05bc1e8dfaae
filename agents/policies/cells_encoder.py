"""Objects as elements: each cell of a small grid, and each word of a mission, is something that RIMs attend to."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from rims_rl.agents.policies.encoders import DictEncoder, is_codes


class CellsEncoder(BaseFeaturesExtractor):
    """Each cell of a grid of codes (MiniGrid's symbolic view), each word, and each other key of a Dict is one element.

    A cell is the sum of the embeddings of its codes (object, colour, state) and of its position, then a small network;
    a word the sum of its embedding and that of its position. Other keys are encoded as in :class:`DictEncoder`. Cells
    come first, row by row.

    Args:
        element_size: width of an element.
        queries: for cores that read one vector: so many learned queries attend to the elements, and what they read,
            side by side, is the vector. Default: a set.
    """

    def __init__(self, observation_space: spaces.Dict, element_size: int = 64, queries: int | None = None) -> None:
        parts: dict[str, Any] = dict(observation_space.spaces)
        grids = [key for key, space in parts.items() if is_codes(space) and len(space.shape) == 3]
        if len(grids) != 1:
            raise ValueError(
                f'input="cells" needs one grid of codes, such as MiniGrid\'s symbolic image, got {len(grids)} of them '
                f"in {', '.join(parts)}"
            )
        self.grid_key = grids[0]
        words = [key for key, space in parts.items() if is_codes(space) and len(space.shape) == 1]
        others = {key: space for key, space in parts.items() if key not in (self.grid_key, *words)}
        self.columns, self.rows, _ = parts[self.grid_key].shape  # MiniGrid's first axis goes across
        self.names = [f"{y},{x}" for y in range(self.rows) for x in range(self.columns)]
        self.names += [f"{key} {i}" for key in words for i in range(parts[key].shape[0])] + list(others)
        self.num_elements, self.element_size = len(self.names), element_size
        super().__init__(observation_space, (queries or self.num_elements) * element_size)
        sizes = parts[self.grid_key].high.max((0, 1)).astype(int) + 1
        self.codes = nn.ModuleList(nn.Embedding(int(size), element_size) for size in sizes)
        self.cell = nn.Sequential(
            nn.Linear(element_size, element_size), nn.ReLU(), nn.Linear(element_size, element_size)
        )
        self.words = nn.ModuleDict({key: nn.Embedding(int(parts[key].high.max()) + 1, element_size) for key in words})
        self.others = DictEncoder(spaces.Dict(others), element_size) if others else None
        self.position = nn.Parameter(0.1 * torch.randn(self.num_elements - len(others), element_size))
        self.pool = None if queries is None else AttentionPool(element_size, queries)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        cells = observations[self.grid_key].long().transpose(1, 2).flatten(1, 2)  # row by row, (batch, cells, 3)
        positions, word_positions = self.position.split([cells.shape[1], len(self.position) - cells.shape[1]])
        summed = positions + sum(embed(code) for embed, code in zip(self.codes, cells.unbind(-1), strict=True))
        elements = [self.cell(summed)]
        if self.words:
            said = torch.cat([embed(observations[key].long()) for key, embed in self.words.items()], 1)
            elements.append(said + word_positions)
        if self.others is not None:
            elements.append(self.others(observations))
        result = torch.cat(elements, 1)
        return result if self.pool is None else self.pool(result)


class AttentionPool(nn.Module):
    """Learned queries attend to a set, `(batch, N, size)`; what they read is one vector, `(batch, queries * size)`."""

    def __init__(self, size: int, queries: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(queries, size))
        self.key, self.value = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)

    def forward(self, elements: Tensor) -> Tensor:
        logits = self.key(elements) @ self.query.t() / math.sqrt(elements.shape[-1])  # (batch, N, queries)
        read = torch.softmax(logits, 1).transpose(1, 2) @ self.value(elements)
        return read.flatten(1)
