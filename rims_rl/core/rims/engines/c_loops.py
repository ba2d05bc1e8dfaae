"""The loops of ``torch_loops`` in C (``loops.c``), compiled on first use with the machine's own compiler.

In torch a step of small RIMs is fifty operations of which each takes longer to call than to compute. The C code is used
on a CPU, if there is a C compiler (``cc``, or what ``CC`` names) and the environment variable ``RIMS_RL_NATIVE`` is not
``0``. For what it does not know, and without a compiler, the loops in torch or the readable engine do the same.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rims_rl.core.rims.cell import GATES, RIMCell
from rims_rl.core.rims.engines.c_struct import ASLEEP, Layer, Prepared, library, make_layer, new, point
from rims_rl.core.rims.engines.loops import Loops
from rims_rl.core.rims.engines.reading import is_one_element
from rims_rl.core.rims.engines.tape import WEIGHTS, Gradients, Tape, add

_LARGE = 300_000  # weights of a layer
_OF = ("input_query", "weight_ih", "weight_hh", "comm_qkv", "comm_out")  # weights, as the loops count them


class CLoops(Loops):
    name, key = "C", "c"
    asleep = tuple(ASLEEP)
    activation = ("exactly", "at_most")
    balances = True

    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        elements = x.shape[2] if cell.input_attention else 1
        if cell.position_competition or cell.own_elements:
            return "the loops in C have no position_competition or own_elements"
        if cell.num_rims > 128 or elements > 4096:  # sizes of arrays on the stack
            return f"{cell.num_rims} RIMs or {elements} elements are too many for the loops in C"
        if x.device.type != "cpu":
            return f"the loops in C run on a CPU, not on {x.device}"
        # turning large weights takes longer than one product with them
        if len(x) == 1 and not cell.at_rest and _weights(cell) > _LARGE:
            return "for a single step with large weights, preparing them takes longer than the step"
        if reason := super().refusal(cell, x):
            return reason
        return None if library(x.dtype) is not None else "the loops in C are not wanted, or cannot be had"

    def forward(
        self, cell: RIMCell, s: Tape, h: Tensor, c: Tensor, save: bool, output: Tensor
    ) -> tuple[Tensor, Tensor]:
        s.values = s.values.contiguous()
        s.keys = None if s.keys is None else s.keys.contiguous()
        s.h_0, s.h = h.contiguous(), output
        s.reads = _reads(s) if is_one_element(cell, s) and _hoists(cell, s) else None
        _check_width("input_value", s.values, cell.input_value_size)
        _check_width("input_key", s.keys, cell.input_heads * cell.input_key_size)
        _check_width("weight_ih", s.reads, GATES[cell.cell] * cell.rim_size)
        last_c = torch.empty_like(h, memory_format=torch.contiguous_format)
        state = {"c_0": c.contiguous(), "c": last_c}
        prepared = None
        if not save and len(s.values) == 1 and s.replayed is None:  # for single steps it pays, and holds little
            prepared = cell.at_rest.made_of([w for name in WEIGHTS if (w := getattr(s, name)) is not None], Prepared)
        idle = [] if prepared is None else prepared.idle[s.values.shape]
        try:
            layer = idle.pop()
            point(layer, vars(s) | state)
        except IndexError:
            _make_room(cell, s, save)
            layer = make_layer(cell, s, vars(s) | state, {} if prepared is None else prepared.packed, turned=True)
        library(h.dtype).forward(ctypes.byref(layer), layer.threads)
        if s.keep_active:
            s.active = layer.held[0]["active"].clone()  # the struct may be used again
        idle.append(layer)
        return output[-1], last_c

    def backward(
        self, cell: RIMCell, s: Tape, d_out: Tensor, d_h: Tensor, d_c: Tensor, gradients: Gradients
    ) -> tuple[Any, ...]:
        d_h, d_c = (x.clone(memory_format=torch.contiguous_format) for x in (d_h, d_c))
        tape = vars(s) | {"d_out": d_out.contiguous(), "d_h": d_h, "d_c": d_c, "d_gates": new(s.values, *s.gates.shape)}
        tape["d_rec"] = tape["d_gates"] if cell.cell == "lstm" else new(s.values, *s.gates.shape)
        if s.keys is not None:
            tape |= {"d_query": new(s.values, *s.query.shape), "d_keys": new(s.values, *s.keys.shape)}
        one = is_one_element(cell, s)
        if not one:
            tape["d_values"] = new(s.values, *s.values.shape)
        if cell.communication:
            tape |= {"d_message": torch.empty_like(s.updated), "d_qkv": new(s.values, *s.qkv.shape)}
            tape["d_kept"] = new(s.values, *s.kept.shape)
        layer = make_layer(cell, s, tape, {}, turned=False)
        loops = library(d_h.dtype)
        loops.backward(ctypes.byref(layer), layer.threads)

        for name in _OF:
            if getattr(s, name) is not None and not (one and name == "weight_ih"):
                add(gradients, name, _weight_gradient(s, layer, name))
        for name, of in (("bias_ih", "d_gates"), ("bias_hh", "d_rec")):
            out = s.values.new_empty(s.bias_ih.shape)
            loops.bias_gradient(ctypes.byref(layer), layer.threads, ctypes.byref(getattr(layer, of)), out.data_ptr())
            add(gradients, name, out)
        d_values = _value_gradient(s, tape["d_gates"], gradients) if one else tape["d_values"]
        return tape.get("d_keys"), d_values, d_h, d_c

    def record(self, cell: RIMCell, s: Tape, elements: int) -> tuple[Tensor, Tensor]:
        T, B = s.gates.shape[:2]
        K, active = cell.num_rims, s.active.squeeze(-1).permute(1, 2, 0)
        if s.keys is None:
            attention = F.pad((active / elements).unsqueeze(-1).expand(-1, -1, -1, elements), (0, 1))
        else:
            attention = torch.cat([1 - s.null, s.null], -1) if is_one_element(cell, s) else s.attention.mean(2)
        if not cell.communication:
            return attention, active.new_zeros(T, B, K, K)
        listens = active != 0 if cell.asleep != "listen" else torch.ones_like(active, dtype=torch.bool)
        places = s.slots.clamp_min(0).long().unsqueeze(-1).expand(-1, -1, -1, K)
        return attention, s.p.mean(2).gather(2, places).where(listens.unsqueeze(-1), 0)


def _weights(cell: RIMCell) -> int:
    """How many there are. Asked at every step, so not by way of ``parameters()``, which takes ten times as long."""
    return sum(weight.numel() for weight in cell._parameters.values() if weight is not None)


def _check_width(name: str, made: Tensor | None, width: int) -> None:
    """The loops believe what they are told: of what was made with the weight called ``name``."""
    if made is not None and made.shape[-1] != width:
        raise ValueError(f"{name} must make {width} numbers of each row, got {made.shape[-1]}")


def _hoists(cell: RIMCell, s: Tape) -> bool:
    """Whether values are multiplied with weight_ih of all RIMs before the loop, and not in it with those of the active.

    The one is a product of many rows; the other leaves out what is not read, but reads the weights anew at every step,
    which pays where several rows of a step share them.
    """
    T, B = s.values.shape[:2]
    if s.keys is None or s.read_mask is not None:
        return True
    return T > 1 and B * cell.num_active < 4 * cell.num_rims


def _reads(s: Tape) -> Tensor:
    """Values times weight_ih of each RIM: (K, T, B, G)."""
    (T, B), K = s.values.shape[:2], len(s.weight_ih)
    values = s.values.view(1, T * B, -1).expand(K, -1, -1)
    if s.read_mask is not None:
        values = values * s.read_mask.flatten(1, 2)
    return torch.bmm(values, s.weight_ih.transpose(1, 2)).view(K, T, B, -1)


def _make_room(cell: RIMCell, s: Tape, save: bool) -> None:
    """For everything the loop writes, of all steps or only of the last."""
    T, B, N, V = s.values.shape
    K, H, n, m = cell.num_rims, cell.rim_size, cell.input_heads, cell.comm_heads
    S = K if s.replayed is not None or cell.asleep != "keep" or not cell.input_attention else cell.num_active
    steps, G = T if save else 1, GATES[cell.cell] * H
    one = is_one_element(cell, s)

    def place(width: int) -> Tensor:
        return new(s.values, steps, B, S, width)

    s.active = s.values.new_full((K, T, B, 1), not cell.competes) if s.replayed is None else s.replayed
    s.slots = torch.empty(steps, B, K, dtype=torch.int32)
    s.gates, s.updated = place(G), place(H)
    if cell.cell == "gru":
        s.from_state = place(G)
    else:
        s.c_in = place(H)
    if s.keys is not None:
        if save:
            s.query = place(n * cell.input_key_size)
        if one:
            s.null = new(s.values, steps, B, K, 1)
        else:
            s.attention, s.read = new(s.values, steps, B, n, K, N + 1), place(V)
    s.read_gates = place(G) if one and s.reads is None else None
    if cell.communication:
        s.qkv, s.received, s.p = (
            place(s.comm_qkv.shape[1]),
            place(s.comm_out.shape[2]),
            new(s.values, steps, B, m, S, K),
        )
        # each time a RIM stops to move, and for those who do not begin to
        sleep = cell.asleep == "keep" and (cell.competes or s.replayed is not None)
        most = (K + T * S if save else K) if sleep else 0
        s.kept, s.kept_at = new(s.values, B, most, s.comm_qkv.shape[1]), torch.empty(steps, B, K, dtype=torch.int32)


def _weight_gradient(s: Tape, layer: Layer, name: str) -> Tensor:
    weight: Tensor = getattr(s, name)
    turned = name != "comm_out"  # of which the loops take what comes out for what goes in
    made = torch.empty_like(weight.transpose(1, 2) if turned else weight, memory_format=torch.contiguous_format)
    library(weight.dtype).weight_gradient(
        ctypes.byref(layer), layer.threads, _OF.index(name), *made.shape[1:], made.data_ptr()
    )
    return made.transpose(1, 2) if turned else made


def _value_gradient(s: Tape, d_gates: Tensor, gradients: Gradients) -> Tensor:
    """Of one element: of its values, and of weight_ih, over the steps at which each RIM read it."""
    T, B, S, G = d_gates.shape
    K, values = len(s.weight_ih), s.values.flatten(0, 2)
    if S == K and s.read_mask is None and bool(s.active.all()):
        d_reads = d_gates if s.keys is None else d_gates * (1 - s.null)
        d_reads = d_reads.view(T * B, K * G)
        add(gradients, "weight_ih", torch.mm(d_reads.t(), values).view_as(s.weight_ih))
        return torch.mm(d_reads, s.weight_ih.flatten(0, 1)).view_as(s.values)
    d_values, d_weight = torch.zeros_like(values), torch.empty_like(s.weight_ih)
    slots = s.slots.view(T * B, K)
    for k in range(K):
        rows = s.active[k].flatten().nonzero().squeeze(1)
        d_reads = d_gates.view(-1, G)[rows * S + slots[rows, k]]
        if s.keys is not None:
            d_reads *= 1 - s.null.view(T * B, K)[rows, k].unsqueeze(1)
        read, d_read = values[rows], torch.mm(d_reads, s.weight_ih[k])
        if s.read_mask is not None:
            mask = s.read_mask[k].flatten(0, 1)[rows]
            read, d_read = read * mask, d_read * mask
        torch.mm(d_reads.t(), read, out=d_weight[k])
        d_values.index_add_(0, rows, d_read)
    add(gradients, "weight_ih", d_weight)
    return d_values.view_as(s.values)
