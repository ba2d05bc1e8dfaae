"""The loops in C as operators of torch, ``rims_rl::scan`` and its backward, for code that ``torch.compile`` traces.

A compiler cannot look into C. It sees one operation for each layer, whatever the length of the sequence, and is told
here what shapes come of it. Traced as plain operations instead, a layer is fifty of them for each step.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.engines.c_loops import CLoops, make_room
from rims_rl.core.rims.engines.c_struct import padded
from rims_rl.core.rims.engines.engine import Engine
from rims_rl.core.rims.engines.loops import before_the_loop
from rims_rl.core.rims.engines.readable import Readable
from rims_rl.core.rims.engines.tape import WEIGHTS, Gradients, Tape
from rims_rl.core.rims.trace import Records

# What the loops want to know of a layer besides its weights.
OPTIONS = (
    "input_size", "hidden_size", "num_rims", "num_active", "cell", "input_heads", "input_key_size", "input_value_size",
    "comm_heads", "comm_key_size", "comm_value_size", "comm_top_k", "input_attention", "communication", "asleep",
    "hear", "activation", "null_bound", "position_competition",
)  # fmt: skip
_LOOPS, _READABLE = CLoops(), Readable()


class COperator(Engine):
    """For layers without dropout and balance. If somebody wants to know what happens inside, it is not used."""

    name = "C"

    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        dropout = cell.training and cell.input_dropout + cell.comm_dropout > 0
        if cell.balance or cell.forced is not None or cell.own_elements or dropout:
            return "the operator has no balance, own_elements and dropout, and forces nobody"
        if cell.asleep == "half-listen" and sum(k < cell.num_stores for k in cell.rims) != cell.num_rims // 2:
            return "the operator takes the first half of the RIMs for those who keep their state"
        return _LOOPS.refusal(cell, x)

    def run(
        self,
        cell: RIMCell,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        starts: Tensor | None = None,
        records: Records | None = None,
        replayed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if records is not None or replayed is not None:
            return _READABLE.run(cell, x, h, c, starts, records, replayed)
        keys, values, weights = before_the_loop(cell, x)
        keep = None if starts is None else (starts == 0).to(x.dtype)
        options = ";".join([f"{name}={getattr(cell, name)!r}" for name in OPTIONS])
        given = [None if tensor is None else tensor.contiguous() for tensor in (keys, values)]
        of_layer = [weights[name] for name in _weights(cell)]
        output, last_h, last_c, _ = scan(options, *given, keep, h.contiguous(), c.contiguous(), of_layer)
        return output, last_h, last_c


@torch.library.custom_op("rims_rl::scan", mutates_args=(), device_types="cpu")
def scan(
    options: str, keys: Tensor | None, values: Tensor, keep: Tensor | None, h: Tensor, c: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """A layer over a sequence: its output, the last h and c, and what the backward wants."""
    cell = _cell(options)
    output = values.new_empty(*values.shape[:2], cell.hidden_size)
    tape = _tape(cell, (keys, values, keep, h, output, *weights))
    given = set(vars(tape))
    last_h, last_c = _LOOPS.forward(cell, tape, h, c, True, output, {})
    return output, last_h.clone(), last_c, [getattr(tape, name) for name in _written(tape, given)]


@scan.register_fake
def _shapes(
    options: str, keys: Tensor | None, values: Tensor, keep: Tensor | None, h: Tensor, c: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    cell = _cell(options)
    output = values.new_empty(*values.shape[:2], cell.hidden_size)
    tape, written = _with_room(cell, (keys, values, keep, h, output, *weights))
    return output, torch.empty_like(h), torch.empty_like(c), [getattr(tape, name) for name in written]


@torch.library.custom_op("rims_rl::scan_backward", mutates_args=(), device_types="cpu")
def scan_backward(options: str, given: list[Tensor | None], written: list[Tensor], d: list[Tensor]) -> list[Tensor]:
    """Gradients of the keys, if there are some, of values, h, c and weights, from those of output, h and c."""
    cell = _cell(options)
    on_meta = [None if tensor is None else tensor.to("meta") for tensor in given]
    tape = _tape(cell, given)
    for name, tensor in zip(_with_room(cell, on_meta)[1], written, strict=True):
        setattr(tape, name, padded(tensor))
    tape.read_gates, tape.reads = getattr(tape, "read_gates", None), getattr(tape, "reads", None)
    gradients: Gradients = {}
    d_output, d_h, d_c = (part.contiguous() for part in d)
    of_input = _LOOPS.backward(cell, tape, d_output, d_h, d_c, gradients, {})
    return [part for part in of_input if part is not None] + [gradients[name] for name in _weights(cell)]


@scan_backward.register_fake
def _(options: str, given: list[Tensor | None], written: list[Tensor], d: list[Tensor]) -> list[Tensor]:
    keys, values, _, h, _, *weights = given
    return [torch.empty_like(part) for part in (keys, values, h, h, *weights) if part is not None]


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    options, keys, values, keep, h, _, weights = inputs
    ctx.options, ctx.given = options, 5 + len(weights)
    ctx.save_for_backward(keys, values, keep, h, output[0], *weights, *output[3])


def _backward(ctx: Any, d_output: Tensor, d_h: Tensor, d_c: Tensor, _: Any) -> Any:
    given, written = ctx.saved_tensors[: ctx.given], ctx.saved_tensors[ctx.given :]
    gradients = scan_backward(ctx.options, list(given), list(written), [d_output, d_h, d_c])
    d_keys = None if given[0] is None else gradients.pop(0)
    d_values, d_first_h, d_first_c, *of_weights = gradients
    return None, d_keys, d_values, None, d_first_h, d_first_c, of_weights


scan.register_autograd(_backward, setup_context=_save)


@functools.cache
def _cell(options: str) -> RIMCell:
    """A layer with these options, and without weights of its own."""
    pairs = (option.split("=", 1) for option in options.split(";"))
    return RIMCell(**{name: ast.literal_eval(value) for name, value in pairs}, device="meta")


def _weights(cell: RIMCell) -> list[str]:
    return [name for name in WEIGHTS if name in cell.weight_shapes()]


def _tape(cell: RIMCell, given: Sequence[Tensor | None]) -> Tape:
    keys, values, keep, h, output, *weights = given
    of_layer = dict.fromkeys(WEIGHTS) | dict(zip(_weights(cell), weights, strict=True))
    return Tape(keys=keys, values=values, keep=keep, h_0=h, h=output, read_mask=None, message_mask=None, **of_layer)


def _with_room(cell: RIMCell, given: Sequence[Tensor | None]) -> tuple[Tape, list[str]]:
    """A tape as it is after the forward, but for the numbers; and what is new on it."""
    tape = _tape(cell, given)
    before = set(vars(tape))
    tape.reads = None
    if tape.keys is None and tape.values.shape[0] > 1:
        tape.reads = tape.values.new_empty(cell.num_rims, *tape.values.shape[:2], tape.weight_ih.shape[1])
    make_room(cell, tape, True, _LOOPS.places(cell, False))
    return tape, _written(tape, before)


def _written(tape: Tape, before: set[str]) -> list[str]:
    return sorted(name for name, tensor in vars(tape).items() if name not in before and isinstance(tensor, Tensor))
