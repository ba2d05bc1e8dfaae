"""Layers of Recurrent Independent Mechanisms over sequences, with the call of :class:`torch.nn.LSTM`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rims_rl.core.checks import check_input, check_starts, check_state
from rims_rl.core.core import Core, State
from rims_rl.core.rims.cell import RIMCell, RIMStep
from rims_rl.core.rims.engines.choose import check_engine, choose_engine
from rims_rl.core.rims.interventions import Intervened
from rims_rl.core.rims.trace import Records, Trace


class RIM(Core):
    r"""Layers of Recurrent Independent Mechanisms (Goyal et al., 2021) over a sequence: a drop-in for nn.LSTM.

    The equations of one step of one layer are those of :class:`RIMCell`. Layer l > 1 reads the output of the layer
    below as one element.

    Args:
        input_size: width of one input element.
        hidden_size: width of the output, ``num_rims`` times the size of one RIM. The state is as wide, unless the cells
            keep a memory beside their RIMs; the attribute of this name is its width.
        num_rims: how many RIMs there are in each layer.
        num_active: how many of them are updated at each step.
        num_layers: how many layers there are.
        batch_first: ``x``, ``output`` and ``episode_starts`` have the batch before time. The state does not change.
        cell_class: :class:`RIMCell`, or a subclass that changes the mechanism.
        engine: what runs the layers over a sequence: ``"readable"``, the cell's own equations in a plain loop,
            ``"torch"`` or ``"c"``, the same much faster, or ``"auto"``, the fastest that can.
        **options: cell, input_heads, input_key_size, input_value_size, comm_heads, comm_key_size, comm_value_size,
            comm_top_k, input_dropout, comm_dropout, input_attention, communication, position_competition,
            own_elements, start, initialization, hear, asleep, activation, null_bound, balance, selection, competition,
            device, dtype: see :class:`RIMCell`.

    Inputs: x, state, episode_starts
        - **x** of shape `(T, B, input_size)`, or `(T, B, N, input_size)` for a set of N elements: positions of a
          feature map, entries of a Dict observation, words.
        - **state**: a pair `(h_0, c_0)`, each `(num_layers, B, hidden_size)`. Default: :meth:`initial_state`, zeros.
        - **episode_starts** of shape `(T, B)`: where it is not zero, the state is the initial one before that step.

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
    more_elements: ClassVar[tuple[str, ...]] = ()  # that the first layer reads after those of the input

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_rims: int = 6,
        num_active: int = 4,
        *,
        num_layers: int = 1,
        batch_first: bool = False,
        cell_class: type[RIMCell] = RIMCell,
        engine: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, device=options.get("device"), dtype=options.get("dtype"))
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if not (isinstance(cell_class, type) and issubclass(cell_class, RIMCell)):
            raise ValueError(f"cell_class must be RIMCell or a subclass of it, got {cell_class!r}")
        check_engine(engine)
        self.batch_first, self.engine = batch_first, engine
        widths = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(cell_class(width, hidden_size, num_rims, num_active, **options) for width in widths)
        self.hidden_size, self.output_size = self.cells[0].state_size, hidden_size
        self._traces: list[Trace] = []
        self._dropped: frozenset[int] = frozenset()
        self._forced: frozenset[int] = frozenset()
        self._replayed: Tensor | None = None

    def extra_repr(self) -> str:
        return f"num_layers={self.num_layers}, batch_first={self.batch_first}, engine={self.engine!r}"

    @property
    def cells(self) -> list[RIMCell]:
        """The layers."""
        return list(self.layers)  # type: ignore[arg-type]

    def initial_state(self, batch: int) -> State:
        h, c = map(torch.stack, zip(*(cell.initial_state(batch) for cell in self.cells), strict=True))
        return h, c

    def forward(
        self, x: Tensor, state: State | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        check_input(x, self.cells[0].input_value)
        if x.dim() == 2 and x.shape[1] == self.input_size:
            return self._run_one(x, state, episode_starts, batch=0 if self.batch_first else 1)
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
        output, state = self._run(x, h, c, episode_starts)
        return output.transpose(0, 1) if self.batch_first else output, state

    def _run(self, x: Tensor, h: Tensor, c: Tensor, starts: Tensor | None) -> tuple[Tensor, State]:
        """One layer after the other over all of ``x`` (T, B, N, D): the output (T, B, output_size), and the state."""
        last_h, last_c = [], []
        replayed = [None] * self.num_layers if self._replayed is None else self._check_replayed(*x.shape[:2])
        layers = zip(self.cells, h.unbind(0), c.unbind(0), replayed, strict=True)
        for layer, (cell, h_l, c_l, active) in enumerate(layers):
            records = self._records(cell)
            if self._dropped or self._forced:
                changed = Intervened(cell, self._dropped, self._forced)
                engine = choose_engine(self.engine, changed.cell, x, h_l, c_l)
                x, h_l, c_l = changed.run(engine, x, h_l, c_l, starts, records)
            else:
                engine = choose_engine(self.engine, cell, x, h_l, c_l)
                x, h_l, c_l = engine.run(cell, x, h_l, c_l, starts, records, active)
            last_h.append(h_l)
            last_c.append(c_l)
            self._keep(layer, records)
            x = x.unsqueeze(2)
        h, c = (torch.stack(part) if len(part) > 1 else part[0].unsqueeze(0) for part in (last_h, last_c))
        return x.squeeze(2), (h, c)

    def _records(self, cell: RIMCell) -> Records | None:
        """For what happens in a layer, if somebody wants to know."""
        if not (self._traces or cell.balances):
            return None
        return Records(all(trace.only_active for trace in self._traces))

    def _keep(self, layer: int, records: Records | None) -> None:
        """What happened in a layer, for those who trace, and for its balance."""
        if records is None:
            return
        for trace in self._traces:
            trace.add(layer, records)
        if self.cells[layer].balances:
            self.cells[layer].rebalance(torch.cat([record.active for record in records]))

    def step(self, x: Tensor, state: State) -> RIMStep:
        """One step of all layers, a pure function of tensors, in the readable form: what export wraps.

        ``x`` is `(B, input_size)` or `(B, N, input_size)`; ``state`` and the new ``h``, ``c`` are those of
        :meth:`forward`, the rest of the result is of the last layer.
        """
        self.cells[0].check_input(x)
        h, c = self._check_state(state, x, x.shape[0])
        steps = self._step_layers(self._changed(), x, h, c)
        h, c = (torch.stack(part) for part in zip(*((step.h, step.c) for step in steps), strict=True))
        return steps[-1]._replace(h=h, c=c)

    def _changed(self) -> Sequence[RIMCell | Intervened]:
        """The layers, without the RIMs that are dropped, and with those that are forced."""
        if not (self._dropped or self._forced):
            return self.cells
        return [Intervened(cell, self._dropped, self._forced) for cell in self.cells]

    def _step_layers(self, layers: Sequence[RIMCell | Intervened], x: Tensor, h: Tensor, c: Tensor) -> list[RIMStep]:
        """One step of each of ``layers``, from the one that reads ``x`` to the last."""
        steps: list[RIMStep] = []
        for index, layer in enumerate(layers):
            steps.append(layer.step_with_hooks(self._elements(index, x, h), h[index], c[index]))
            x = steps[-1].h[:, : self.output_size]
        return steps

    def _elements(self, layer: int, below: Tensor, h: Tensor) -> Tensor:
        """What a layer reads, of the input or the output of the layer below, and of the states before the step."""
        return below

    @contextmanager
    def trace(self, only_active: bool = False) -> Iterator[Trace]:
        """Record which RIMs are active, what they attend to and whom they listen to, in every call made inside.

        With ``only_active``, only the first of these, which takes next to no time.

        ::

            with rim.trace() as trace:
                rim(x)
            trace.active  # (T, B, num_rims)
        """
        trace = Trace(self.num_layers, self.batch_first, only_active)
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
    def replay(self, active: Tensor) -> Iterator[None]:
        """Let those be active who are so in ``active``, `(num_layers, T, B, num_rims)`, in the call made inside,
        instead of a competition: what a trace recorded with other weights, say. What they read follows from their
        attention, as ever.

        ::

            with rim.trace(only_active=True) as trace:
                rim(x)
            with rim.replay(torch.stack([layer.active for layer in trace.layers])):
                rim(x)
        """
        if not all(cell.replays for cell in self.cells):
            raise ValueError(f"{type(self.cells[0]).__name__} has a step of its own, in which nobody can be replayed")
        self._replayed = active
        try:
            yield
        finally:
            self._replayed = None

    @contextmanager
    def _intervene(self, dropped: frozenset[int], forced: frozenset[int]) -> Iterator[None]:
        before = self._dropped, self._forced
        dropped, forced = self._dropped | dropped, self._forced | forced
        num_rims, num_active = self.cells[0].num_rims, self.cells[0].num_active
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

    def _check_replayed(self, steps: int, batch: int) -> list[Tensor]:
        assert self._replayed is not None
        shape = (self.num_layers, *((batch, steps) if self.batch_first else (steps, batch)), self.cells[0].num_rims)
        if self._replayed.shape != shape:
            raise ValueError(f"active must be {shape} to be replayed here, got {tuple(self._replayed.shape)}")
        if self._dropped or self._forced:
            raise ValueError("RIMs cannot be dropped or forced while others' activity is replayed")
        return list((self._replayed.transpose(1, 2) if self.batch_first else self._replayed).unbind(0))

    def _check_state(self, state: tuple[Tensor, Tensor] | None, x: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        if state is None:
            return self.initial_state(batch)
        check_state(state, (self.num_layers, batch, self.hidden_size), x)
        return state


@contextmanager
def weights_at_rest(module: nn.Module) -> Iterator[None]:
    """Inside, what the engines make of the weights of ``module``'s RIMs is made once and used for many steps, as in a
    rollout.

    If a weight changes all the same, this is noticed, and it is made anew: after a step of any optimizer of torch, if
    the weight is another tensor or has other memory (``to``, ``weight.data = ...``), and wherever autograd counts a
    change (``load_state_dict``, ``copy_``). What torch itself cannot tell is not noticed: writing into ``weight.data``,
    into its memory through numpy, or from another process. Any number of threads may call the module.
    """
    resting = [cell.at_rest for cell in module.modules() if isinstance(cell, RIMCell)]
    for rest in resting:
        rest.begin()
    try:
        yield
    finally:
        for rest in resting:
            rest.end()
