"""Layers of RIMs that also hear the layer above (Mittal et al., "Learning to combine top-down and bottom-up signals in
recurrent neural networks with attention over modules", 2020, arXiv:2006.16981): core ``brims``."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rims_rl.core.checks import require
from rims_rl.core.core import State
from rims_rl.core.rims.layer import RIM


class TopDownRIM(RIM):
    r"""Layers of RIMs that read the layer below at this step and, as one more element, the layer above at the step
    before: bidirectional RIMs.

    With the elements :math:`x_t` of the input, :math:`h^l_t` the state of layer l of L after step t, and
    :math:`\mathrm{RIMs}^l` one step of a layer as in :class:`RIMCell`, which decides by attention what to listen to:

    .. math::
        \begin{array}{ll}
        h^1_t = \mathrm{RIMs}^1\big(\{x_t,\ h^2_{t-1} W^1\},\ h^1_{t-1}\big) & \\
        h^l_t = \mathrm{RIMs}^l\big(\{h^{l-1}_t,\ h^{l+1}_{t-1} W^l\},\ h^l_{t-1}\big) & 1 < l < L \\
        h^L_t = \mathrm{RIMs}^L\big(\{h^{L-1}_t\},\ h^L_{t-1}\big) & \text{nobody is above}
        \end{array}

    :math:`W^l`, learned and without a bias, brings what comes from above to the width of the other elements. Where an
    episode begins, the layer above has its initial state: with zeros it counts as much as null.

    Args:
        num_layers: how many layers there are, at least 2.
        input_size, hidden_size, num_rims, num_active, **options: of :class:`RIM`; ``own_elements`` must be False.
        engine: ``"auto"`` or ``"readable"``: all layers take a step before any of them takes the next.

    Inputs and outputs as in :class:`RIM`. A trace of a layer's input attention has the layer above between the elements
    from below and null; the last layer has none. Without input attention, RIMs read the mean of all elements, that from
    above included.

    Attributes:
        layers: as in :class:`RIM`.
        top_down: :math:`W^l` of all layers but the last.
    """

    more_elements: ClassVar[tuple[str, ...]] = ("layer above",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_rims: int = 6,
        num_active: int = 4,
        *,
        num_layers: int = 2,
        engine: str = "auto",
        **options: Any,
    ) -> None:
        require(
            num_layers >= 2, f"num_layers must be at least 2 where layers listen to the one above, got {num_layers}"
        )
        require(
            engine in ("auto", "readable"),
            f"engine must be 'auto' or 'readable' where layers listen to the one above, got {engine!r}",
        )
        require(
            not options.get("own_elements"),
            "own_elements must be False where layers listen to the one above, got True: nobody would read that",
        )
        super().__init__(input_size, hidden_size, num_rims, num_active, num_layers=num_layers, engine=engine, **options)
        made = {"device": options.get("device"), "dtype": options.get("dtype")}
        self.top_down = nn.ModuleList(
            nn.Linear(self.output_size, cell.input_size, bias=False, **made) for cell in self.cells[:-1]
        )
        for cell in self.cells:
            cell.engines = ("readable",)  # the others run one layer to the end before the next begins

    def _run(self, x: Tensor, h: Tensor, c: Tensor, starts: Tensor | None) -> tuple[Tensor, State]:
        layers, all_steps = self._changed(), []
        replayed = None if self._replayed is None else self._check_replayed(*x.shape[:2])
        if replayed is not None:
            layers = [copy.copy(cell) for cell in self.cells]  # others may be using them
        for t in range(len(x)):
            if starts is not None:
                h, c = self.begin((h, c), starts[t])
            for cell, active in zip(layers, replayed or (), strict=False):
                cell.replayed = active[t]  # type: ignore[union-attr]
            steps = self._step_layers(layers, x[t], h, c)
            h, c = (torch.stack(part) for part in zip(*((step.h, step.c) for step in steps), strict=True))
            all_steps.append(steps)
        for layer, of_layer in enumerate(zip(*all_steps, strict=True)):
            records = self._records(self.cells[layer])
            if records is not None:
                _, _, *inside = (torch.stack(part).detach() for part in zip(*of_layer, strict=True))
                records.add(*inside)
            self._keep(layer, records)
        return torch.stack([steps[-1].h[:, : self.output_size] for steps in all_steps]), (h, c)

    def _elements(self, layer: int, below: Tensor, h: Tensor) -> Tensor:
        if below.dim() == 2:
            below = below.unsqueeze(1)
        if layer == self.num_layers - 1:
            return below
        above = h[layer + 1, :, : self.output_size]
        if self._dropped:  # their state is zero, whatever is given
            gone = torch.tensor(sorted(self._dropped), device=h.device)
            above = above.unflatten(-1, (self.cells[0].num_rims, -1)).index_fill(-2, gone, 0).flatten(-2)
        return torch.cat([below, self.top_down[layer](above).unsqueeze(1)], 1)
