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

from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.cell_options import GATES
from rims_rl.core.rims.engines.c_struct import ASLEEP, Prepared, asleep_of, has_library, library, make_layer, new, point
from rims_rl.core.rims.engines.loops import Loops
from rims_rl.core.rims.engines.reading import is_one_element
from rims_rl.core.rims.engines.tape import WEIGHTS, Gradients, Tape

_LARGE = 300_000  # weights of a layer
# Weights as the loops count them, and whether they find their gradients turned.
_WEIGHTS = {"input_query": True, "weight_ih": False, "weight_hh": True, "comm_qkv": True, "comm_out": False,
            "comm_gate": False}  # fmt: skip


class CLoops(Loops):
    name, key = "C", "c"
    asleep = tuple(ASLEEP)
    activation = ("exactly", "at_most")
    hear = ("states", "updates")
    communication = (True, "gated", False)
    balances = True

    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        elements = x.shape[2] if cell.input_attention else 1
        if cell.num_rims > 128 or elements > 4096:  # sizes of arrays on the stack
            return f"{cell.num_rims} RIMs or {elements} elements are too many for the loops in C"
        if x.device.type != "cpu":
            return f"the loops in C run on a CPU, not on {x.device}"
        # turning large weights takes longer than one product with them
        if x.shape[0] == 1 and not cell.at_rest and _weights(cell) > _LARGE:
            return "for a single step with large weights, preparing them takes longer than the step"
        if reason := super().refusal(cell, x):
            return reason
        return None if has_library(x.dtype) else "the loops in C are not wanted, or cannot be had"

    def places(self, cell: RIMCell, replays: bool) -> int:
        asleep = _sleepers(cell) if cell.input_attention and not replays else 0
        return cell.num_rims - asleep + min(asleep, cell.num_active)

    def forward(
        self, cell: RIMCell, s: Tape, h: Tensor, c: Tensor, save: bool, output: Tensor, shared: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        if cell.own_elements:
            cell.foreign(s.values.shape[2], s.values.device)  # says if there are not enough
        s.values = s.values.contiguous()
        s.keys = None if s.keys is None else s.keys.contiguous()
        s.h_0, s.h = h.contiguous(), output
        s.reads = _reads(s) if s.keys is None and len(s.values) > 1 and s.read_mask is None else None
        _check_width("input_value", s.values, s.weight_ih.shape[-1])
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
            make_room(cell, s, save, self.places(cell, s.replayed is not None))
            layer = make_layer(cell, s, vars(s) | state, shared if prepared is None else prepared.packed, turned=True)
        library(h.dtype).forward(ctypes.byref(layer), layer.threads)
        if s.keep_active:
            s.active = layer.held[0]["active"].clone()  # the struct may be used again
        idle.append(layer)
        return output[-1], last_c

    def backward(
        self,
        cell: RIMCell,
        s: Tape,
        d_out: Tensor,
        d_h: Tensor,
        d_c: Tensor,
        gradients: Gradients,
        shared: dict[str, Tensor],
    ) -> tuple[Any, ...]:
        d_h, d_c = (x.clone(memory_format=torch.contiguous_format) for x in (d_h, d_c))
        tape = vars(s) | {"d_out": d_out.contiguous(), "d_h": d_h, "d_c": d_c, "d_gates": new(s.values, *s.gates.shape)}
        tape["d_rec"] = tape["d_gates"] if cell.cell == "lstm" else new(s.values, *s.gates.shape)
        tape["d_values"] = new(s.values, *s.values.shape)
        if s.keys is not None:
            tape |= {"d_query": new(s.values, *s.query.shape), "d_keys": new(s.values, *s.keys.shape)}
        if cell.communication:
            d_message = torch.empty_like(s.message if cell.communication == "gated" else s.updated)
            tape |= {"d_message": d_message, "d_qkv": new(s.values, *s.qkv.shape)}
            tape["d_kept"] = new(s.values, *s.kept.shape)
        layer = make_layer(cell, s, tape, shared, turned=False)
        loops, here = library(d_h.dtype), (ctypes.byref(layer), layer.threads)
        loops.backward(*here)
        if is_one_element(cell, s):
            loops.value_gradient(*here)

        for weight, (name, turned) in enumerate(_WEIGHTS.items()):
            if getattr(s, name) is None:
                continue
            fresh = name not in gradients
            if fresh:
                gradients[name] = torch.empty_like(getattr(s, name), memory_format=torch.contiguous_format)
            of = gradients[name]
            rows = of.shape[:0:-1] if turned else of.shape[1:]
            loops.weight_gradient(*here, weight, *rows, turned, fresh, of.data_ptr())
        for name, d in (("bias_ih", layer.d_gates), ("bias_hh", layer.d_rec)):
            of = gradients.setdefault(name, s.values.new_zeros(s.bias_ih.shape))
            loops.bias_gradient(*here, ctypes.byref(d), of.data_ptr())
        return tape.get("d_keys"), tape["d_values"], d_h, d_c

    def record(self, cell: RIMCell, s: Tape, elements: int) -> tuple[Tensor, Tensor]:
        T, B = s.gates.shape[:2]
        K, active = cell.num_rims, s.active.squeeze(-1).permute(1, 2, 0)
        if s.keys is None:
            attention = F.pad((active / elements).unsqueeze(-1).expand(-1, -1, -1, elements), (0, 1))
        elif is_one_element(cell, s):
            attention = torch.cat([1 - s.null, s.null], -1)
        else:
            attention = s.attention.clamp_min(0).mean(2)  # negative where others keep the element
        if not cell.communication:
            return attention, active.new_zeros(T, B, K, K)
        listens = (active != 0) | (asleep_of(cell) == ASLEEP["listen"])
        places = s.slots.clamp_min(0).long().unsqueeze(-1).expand(-1, -1, -1, K)
        return attention, s.p.mean(2).gather(2, places).where(listens.unsqueeze(-1), 0)


def _weights(cell: RIMCell) -> int:
    """How many there are. Asked at every step, so not by way of ``parameters()``, which takes ten times as long."""
    return sum(weight.numel() for weight in cell._parameters.values() if weight is not None)


def _sleepers(cell: RIMCell) -> int:
    """Of how many RIMs nothing is computed while they are not active."""
    return sum(k < cell.num_stores for k in cell.rims) if cell.hear == "states" else 0


def _check_width(name: str, made: Tensor | None, width: int) -> None:
    """The loops believe what they are told: of what was made with the weight called ``name``."""
    if made is not None and made.shape[-1] != width:
        raise ValueError(f"{name} must make {width} numbers of each row, got {made.shape[-1]}")


def _reads(s: Tape) -> Tensor:
    """Values times weight_ih of each RIM, (K, T, B, G): one product of many rows, if all RIMs read at every step. Where
    they compete, it is left to the loop, for those who win."""
    (T, B), K = s.values.shape[:2], len(s.weight_ih)
    values = s.values.view(1, T * B, -1).expand(K, -1, -1)
    return torch.bmm(values, s.weight_ih.transpose(1, 2)).view(K, T, B, -1)


def make_room(cell: RIMCell, s: Tape, save: bool, S: int) -> None:
    """For everything the loop writes, of all steps or only of the last; ``S`` places at each."""
    T, B, N, V = s.values.shape
    K, H, n, m = cell.num_rims, cell.rim_size, cell.input_heads, cell.comm_heads
    steps, G = T if save else 1, GATES[cell.cell] * H
    one = is_one_element(cell, s)

    def place(width: int) -> Tensor:
        return new(s.values, steps, B, S, width)

    s.active = s.values.new_full((K, T, B, 1), not cell.competes) if s.replayed is None else s.replayed
    s.slots = s.values.new_empty(steps, B, K, dtype=torch.int32)
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
            s.attention = new(s.values, steps, B, n, K, N + 1)
    if not one or s.read_mask is not None:
        s.read = place(V)
    s.read_gates = place(G) if one and s.reads is None else None
    if cell.communication:
        s.qkv, s.received, s.p = (
            place(s.comm_qkv.shape[1]),
            place(s.comm_out.shape[2]),
            new(s.values, steps, B, m, S, K),
        )
        if cell.communication == "gated":
            s.message = place(2 * H)
        # each time a RIM stops to move, and for those who do not begin to
        sleepers = _sleepers(cell) if cell.competes or s.replayed is not None else 0
        most = sleepers + T * (S - K + sleepers) if save else K if sleepers else 0
        s.kept, s.kept_at = new(s.values, B, most, s.comm_qkv.shape[1]), torch.empty_like(s.slots)
