"""Layers of Recurrent Independent Mechanisms over sequences, with the call of :class:`torch.nn.LSTM`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rims_rl.core.rims.cell import PLAIN, RIMCell, RIMStep, check_input, check_starts, check_state
from rims_rl.core.rims.engines import c_loops
from rims_rl.core.rims.engines.torch_loops import scan
from rims_rl.core.rims.interventions import Part
from rims_rl.core.rims.trace import Record, Trace


class RIM(nn.Module):
    r"""Layers of Recurrent Independent Mechanisms (Goyal et al., 2021) over a sequence: a drop-in for nn.LSTM.

    The equations of one step of one layer are those of :class:`RIMCell`. Layer l > 1 reads the output of the layer
    below as one element.

    Args:
        input_size: width of one input element.
        hidden_size: width of the state and the output, ``num_rims`` times the size of one RIM.
        num_rims: how many RIMs there are in each layer.
        num_active: how many of them are updated at each step.
        num_layers: how many layers there are.
        batch_first: ``x``, ``output`` and ``episode_starts`` have the batch before time. The state does not change.
        **options: cell, input_heads, input_key_size, input_value_size, comm_heads, comm_key_size, comm_value_size,
            comm_top_k, input_dropout, comm_dropout, input_attention, communication, position_competition,
            own_elements, device, dtype: see :class:`RIMCell`.

    Inputs: x, state, episode_starts
        - **x** of shape `(T, B, input_size)`, or `(T, B, N, input_size)` for a set of N elements: positions of a
          feature map, entries of a Dict observation, words.
        - **state**: a pair `(h_0, c_0)`, each `(num_layers, B, hidden_size)`. Default: zeros.
        - **episode_starts** of shape `(T, B)`: not zero where the state is set to zero before that step.

    Outputs: output, (h_n, c_n)
        - **output** of shape `(T, B, hidden_size)`: h of the last layer at each step. RIM k owns the slice
          ``[k * rim_size, (k + 1) * rim_size)``, here and in the state.
        - **h_n**, **c_n** of shape `(num_layers, B, hidden_size)`. A GRU carries ``c_0`` untouched.

    Attributes:
        layers: the :class:`RIMCell` of each layer, which holds its weights.

    Example::

        >>> rim = RIM(10, 60, num_rims=6, num_active=4)
        >>> output, (h, c) = rim(torch.randn(7, 3, 10))
        >>> output.shape, h.shape
        (torch.Size([7, 3, 60]), torch.Size([1, 3, 60]))
    """

    takes_sets = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_rims: int = 6,
        num_active: int = 4,
        *,
        num_layers: int = 1,
        batch_first: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        self.input_size = input_size
        self.hidden_size = self.output_size = hidden_size
        self.num_layers = num_layers
        self.batch_first = batch_first
        widths = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(RIMCell(width, hidden_size, num_rims, num_active, **options) for width in widths)
        self._traces: list[Trace] = []
        self._dropped: frozenset[int] = frozenset()
        self._forced: frozenset[int] = frozenset()

    def extra_repr(self) -> str:
        return f"num_layers={self.num_layers}, batch_first={self.batch_first}"

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        check_input(x, self.layers[0].input_value)  # type: ignore[arg-type]
        if x.dim() not in (3, 4) or x.shape[-1] != self.input_size:
            lead = "B, T" if self.batch_first else "T, B"
            raise ValueError(
                f"x must be ({lead}, {self.input_size}) or ({lead}, N, {self.input_size}): input_size is "
                f"{self.input_size}, got shape {tuple(x.shape)}"
            )
        if x.dim() == 3:
            x = x.unsqueeze(2)
        if self.batch_first:
            x = x.transpose(0, 1)
        steps, batch = x.shape[:2]
        if min(x.shape[:3]) == 0:
            raise ValueError(f"x must have at least one step, batch entry and element, got shape {tuple(x.shape)}")
        if episode_starts is not None:
            if self.batch_first:
                check_starts(episode_starts, (batch, steps), x)
                episode_starts = episode_starts.transpose(0, 1)
            check_starts(episode_starts, (steps, batch), x)
        h, c = self._check_state(state, x, batch)
        last_h, last_c = [], []
        for layer, h_l, c_l in zip(self.layers, h.unbind(0), c.unbind(0), strict=True):
            records: list[Record] | None = [] if self._traces else None
            run = scan if can_scan(layer, x, h_l, c_l) else plain_scan  # type: ignore[arg-type]
            if self._dropped or self._forced:
                part = Part(layer, self._dropped, self._forced)  # type: ignore[arg-type]
                x, h_l, c_l = part.scan(run, x, h_l, c_l, episode_starts, records)
            else:
                x, h_l, c_l = run(layer, x, h_l, c_l, episode_starts, records)  # type: ignore[arg-type]
            last_h.append(h_l)
            last_c.append(c_l)
            for trace in self._traces:
                trace.add(len(last_h) - 1, records)  # type: ignore[arg-type]
            x = x.unsqueeze(2)
        output = x.squeeze(2)
        h, c = (torch.stack(part) if len(part) > 1 else part[0].unsqueeze(0) for part in (last_h, last_c))
        return output.transpose(0, 1) if self.batch_first else output, (h, c)

    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> RIMStep:
        """One step of all layers, a pure function of tensors, in the readable form: what export wraps.

        ``x`` is `(B, input_size)` or `(B, N, input_size)`; ``state`` and the new ``h``, ``c`` are those of
        :meth:`forward`, the rest of the result is of the last layer.
        """
        self.layers[0].check_input(x)  # type: ignore[operator]
        h, c = self._check_state(state, x, x.shape[0])
        hs, cs = [], []
        for layer, h_l, c_l in zip(self.layers, h.unbind(0), c.unbind(0), strict=True):
            if self._dropped or self._forced:
                layer = Part(layer, self._dropped, self._forced)  # type: ignore[arg-type, assignment]
            result = layer.step_with_hooks(x, h_l, c_l)  # type: ignore[operator]
            x = result.h
            hs.append(result.h)
            cs.append(result.c)
        return result._replace(h=torch.stack(hs), c=torch.stack(cs))  # type: ignore[no-any-return]

    @contextmanager
    def trace(self) -> Iterator[Trace]:
        """Record which RIMs are active, what they attend to and whom they listen to, in every call made inside.

        ::

            with rim.trace() as trace:
                rim(x)
            trace.active  # (T, B, num_rims)
        """
        trace = Trace(self.num_layers, self.batch_first)
        self._traces.append(trace)
        try:
            yield trace
        finally:
            self._traces.remove(trace)

    def drop(self, *rims: int) -> AbstractContextManager[None]:
        """Take RIMs out, in every layer and every call made inside: the paper's masking of single RIMs.

        The others go on as if the layers had been built without these: ``num_active`` of them are active, or all if
        fewer are left; they compete and communicate with each other only. The state of a dropped RIM is zero, whatever
        state is given, and so is its slice of the output; in a trace it is never active and all its attention is zero.

        ::

            with rim.drop(2, 3):
                output, state = rim(x)
        """
        return self._intervene(frozenset(rims), frozenset())

    def force(self, *rims: int) -> AbstractContextManager[None]:
        """Make RIMs be among the active ones at every step, in every layer and every call made inside.

        Only the choice of who is active changes: the places that are left go to those of the others with the least
        attention on null, and what a forced RIM reads depends on its attention, as ever.
        """
        return self._intervene(frozenset(), frozenset(rims))

    @contextmanager
    def _intervene(self, dropped: frozenset[int], forced: frozenset[int]) -> Iterator[None]:
        before = self._dropped, self._forced
        dropped, forced = self._dropped | dropped, self._forced | forced
        num_rims: int = self.layers[0].num_rims  # type: ignore[assignment]
        num_active: int = self.layers[0].num_active  # type: ignore[assignment]
        if strangers := (dropped | forced) - set(range(num_rims)):
            raise ValueError(f"there is no RIM {min(strangers)}: RIMs are 0 to {num_rims - 1}")
        if both := dropped & forced:
            raise ValueError(f"RIM {min(both)} cannot be dropped and forced")
        if len(dropped) == num_rims:
            raise ValueError(f"at least one of the {num_rims} RIMs must be left, got drop of all")
        if len(forced) > num_active:
            raise ValueError(f"at most num_active={num_active} RIMs can be forced, got {sorted(forced)}")
        self._dropped, self._forced = dropped, forced
        try:
            yield
        finally:
            self._dropped, self._forced = before

    def _check_state(self, state: tuple[Tensor, Tensor] | None, x: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        shape = (self.num_layers, batch, self.hidden_size)
        if state is None:
            zeros = x.new_zeros(shape)
            return zeros, zeros
        check_state(state, shape, x)
        return state


def engine_of(module: nn.Module) -> str:
    """Which loops the RIMs in ``module`` would be trained with on this machine: ``"C"``, ``"torch"``, ``"readable"`` if
    they have something that only the readable equations know, or several of these. Without RIMs, ``"torch"``."""
    engines = set()
    for cell in module.modules():
        if isinstance(cell, RIMCell):
            sequence = cell.input_value.new_empty(2, 1, 1, 1)
            fast = "C" if c_loops.usable(cell, sequence) else "torch"
            engines.add(fast if cell.is_as_built() else "readable")
    return " and ".join(sorted(engines)) or "torch"


def can_scan(cell: RIMCell, x: Tensor, h: Tensor, c: Tensor) -> bool:
    """Whether the fast loops know all that is asked for. What traces, compiles, casts, batches or differentiates code
    in ways of its own wants plain operations."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or x.is_meta
        or torch.is_autocast_enabled(x.device.type)
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
        or not (type(x) in PLAIN and type(h) in PLAIN and type(c) in PLAIN)
        or not cell.is_as_built()
    )


def plain_scan(
    cell: RIMCell, x: Tensor, h: Tensor, c: Tensor, starts: Tensor | None = None, records: list[Record] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`rims_rl.core.rims.engines.torch_loops.scan` as a plain loop over :meth:`RIMCell.step`."""
    steps = []
    for t in range(x.shape[0]):
        if starts is not None:
            alive = (starts[t] == 0).unsqueeze(-1)
            h, c = torch.where(alive, h, 0), torch.where(alive, c, 0)
        steps.append(cell.step_with_hooks(x[t], h, c))
        h, c = steps[-1].h, steps[-1].c
    if records is not None:
        _, _, *rest = zip(*steps, strict=True)
        records.append(Record(*(torch.stack(r).detach() for r in rest)))
    return torch.stack([step.h for step in steps]), h, c
