"""The loops of ``torch_loops`` in C (``loops.c``), compiled on first use with the machine's own compiler.

In torch a step of small RIMs is fifty operations of which each takes longer to call than to compute. The C code is used
for LSTM cells on a CPU, if there is a C compiler (``cc``, or what ``CC`` names) and the environment variable
``RIMS_RL_NATIVE`` is not ``0``. For everything rare, and without a compiler, the loops in torch do the same.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import subprocess
import threading
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.engines.loops import Loops
from rims_rl.core.rims.engines.reading import OneElement, is_one_element
from rims_rl.core.rims.engines.tape import WEIGHTS, Gradients, Tape, add

_SOURCE = Path(__file__).with_name("loops.c")
_PADDED_BYTES = 64
# Tuned for some processors, gcc does without fused multiply-adds in some tiles: then a row would depend, in its last
# bits, on how many are beside it.
_FLAGS = ("-O3", "-march=native", "-mtune=generic", "-fopenmp", "-shared", "-fPIC", f"-DPADDED_BYTES={_PADDED_BYTES}")
_WITHOUT = ((), ("-fopenmp",), ("-fopenmp", "-march=native", "-mtune=generic"))  # what some compilers do not know
_TYPES = {torch.float32: "float", torch.float64: "double"}
_SIZES = ("T", "B", "K", "H", "N", "n", "d", "w", "m", "e", "v", "num_active", "asleep")
_ASLEEP = {"keep": 0, "drift": 1, "listen": 2}  # as the loops count them
_ALL, _ACTIVE, _MOVING, _HEARING = range(4)  # rows of a RIM, likewise
# What the struct of loops.c holds, in its order, and along which of steps t, RIMs k and batch rows b it goes.
_TENSORS = {
    "keep": "tb",
    "keys": "tb", "values": "tb", "query": "ktb", "attention": "tb", "read": "ktb",
    "probes": "ktb", "reads": "ktb", "null": "ktb",
    "h_0": "bk", "c_0": "bk", "h": "tbk", "c": "bk", "h_in": "ktb", "c_in": "ktb", "active": "ktb", "gates": "ktb",
    "updated": "ktb", "qkv": "ktb", "p": "tb", "received": "ktb", "read_mask": "ktb", "message_mask": "ktb",
    "d_out": "tbk", "d_h": "bk", "d_c": "bk", "d_gates": "ktb", "d_message": "ktb", "d_qkv": "ktb", "d_query": "ktb",
    "d_keys": "tb", "d_values": "tb", "d_null": "ktb",
}  # fmt: skip
_LARGE = 300_000  # weights of a layer
_WEIGHTS = ("input_query", "weight_ih", "weight_hh", "comm_qkv", "comm_out")  # in the order of the struct


_one_at_a_time = threading.Lock()  # two threads would write to the same files
_warned = False


class _Prepared:
    """What the loops make of a layer's weights: them packed, and structs for which no thread has a use just now."""

    def __init__(self) -> None:
        self.packed: dict[str, Tensor] = {}
        self.idle: defaultdict[torch.Size, list[_Layer]] = defaultdict(list)


class _Rows(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("t", ctypes.c_long), ("k", ctypes.c_long), ("b", ctypes.c_long))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_long) for name in _SIZES),
        *((name, _Rows) for name in _TENSORS),
        *((name, ctypes.c_void_p) for name in ("bias", *_WEIGHTS)),
    )


class CLoops(Loops):
    name, key = "C", "c"
    asleep = tuple(_ASLEEP)

    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        elements = x.shape[2] if cell.input_attention else 1
        if cell.cell != "lstm":
            return f"the loops in C are for LSTM cells, not for cell={cell.cell!r}"
        if cell.position_competition or cell.own_elements or cell.comm_top_k or cell.forced is not None:
            return "the loops in C have no position_competition, own_elements, comm_top_k or forced RIMs"
        if cell.num_rims > 64 or elements > 4096:  # sizes of arrays on the stack
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
        K, H = cell.num_rims, cell.rim_size
        if is_one_element(cell, s):
            OneElement(cell, s, save)
            _check_width("weight_ih", s.reads, 4 * H)
            if s.keys is not None:
                _check_width("input_query", s.probes, H)
        else:
            s.keys, s.values, s.kept = s.keys.contiguous(), s.values.contiguous(), None
            _check_width("input_key", s.keys, cell.input_heads * cell.input_key_size)
        _check_width("input_value", s.values, cell.input_value_size)
        last_c = torch.empty_like(h, memory_format=torch.contiguous_format)
        state = {"h_0": h.contiguous(), "c_0": c.contiguous(), "h": output, "c": last_c}
        state = {name: x.unflatten(-1, (K, H)) for name, x in state.items()}
        prepared = None
        if not save and len(s.values) == 1 and s.replayed is None:  # for single steps it pays, and holds little
            prepared = cell.at_rest.made_of([w for name in WEIGHTS if (w := getattr(s, name)) is not None], _Prepared)
        idle = [] if prepared is None else prepared.idle[s.values.shape]
        try:
            layer = idle.pop()
            _point(layer, vars(s) | state)
        except IndexError:
            _make_room(cell, s, save)
            weights = _in_loop(s) | {"bias": (s.bias_ih + s.bias_hh).unsqueeze(-1)}
            packed = {} if prepared is None else prepared.packed
            layer = _layer(cell, s, vars(s) | state, weights, packed, turned=True)
        library(h.dtype).forward(ctypes.byref(layer), _threads(layer))
        if s.keep_active:
            s.active = layer.kept[0]["active"].clone()  # the struct may be used again
        idle.append(layer)
        return output[-1], last_c

    def backward(
        self, cell: RIMCell, s: Tape, d_out: Tensor, d_h: Tensor, d_c: Tensor, gradients: Gradients
    ) -> tuple[Any, ...]:
        d_h, d_c = (x.clone(memory_format=torch.contiguous_format) for x in (d_h, d_c))
        state = {"d_out": d_out.contiguous(), "d_h": d_h, "d_c": d_c}
        tape = vars(s) | {name: x.unflatten(-1, (cell.num_rims, cell.rim_size)) for name, x in state.items()}
        one = OneElement(cell, s) if is_one_element(cell, s) else None
        if one is None:
            tape |= {f"d_{name}": _new(s.values, *tape[name].shape) for name in ("query", "keys", "values")}
        elif s.keys is not None:
            tape["d_null"] = one.d_null
        tape["d_gates"] = _new(s.values, *s.gates.shape)
        if cell.communication:
            tape |= {"d_message": torch.empty_like(s.updated), "d_qkv": _new(s.values, *s.qkv.shape)}
        layer = _layer(cell, s, tape, _in_loop(s), {}, turned=False)
        loops, threads = library(d_h.dtype), _threads(layer)
        loops.backward(ctypes.byref(layer), threads)

        def add_product(name: str, x: str, d: str, which: int, transpose: bool = True) -> None:
            """Add the sum over steps and these rows of x times d to the gradient called ``name``."""
            rows, width = [getattr(layer, key) for key in (x, d)], [tape[key].shape[-1] for key in (x, d)]
            out = s.values.new_empty(cell.num_rims, *width)
            x_of, d_of = (ctypes.byref(part) for part in rows)
            loops.weight_gradient(ctypes.byref(layer), threads, x_of, width[0], d_of, width[1], which, out.data_ptr())
            add(gradients, name, out.transpose(1, 2) if transpose else out)

        if one is None:
            d_keys, d_values = tape["d_keys"], tape["d_values"]
            add_product("input_query", "h_in", "d_query", _ACTIVE)
            add_product("weight_ih", "read", "d_gates", _ACTIVE)
        else:
            rows = None
            if cell.num_active < cell.num_rims or s.replayed is not None:
                rows = [active.flatten().nonzero().squeeze(1) for active in s.active]
            d_keys, d_values = one.after_backward(tape["d_gates"], s.h_in, rows, gradients)
        add_product("weight_hh", "h_in", "d_gates", _MOVING)
        for name in ("bias_ih", "bias_hh"):
            add(gradients, name, tape["d_gates"].sum((1, 2)))
        if cell.communication:
            add_product("comm_qkv", "updated", "d_qkv", _ALL)
            add_product("comm_out", "d_message", "received", _HEARING, transpose=False)
        return d_keys, d_values, d_h, d_c


def _weights(cell: RIMCell) -> int:
    """How many there are. Asked at every step, so not by way of ``parameters()``, which takes ten times as long."""
    return sum(weight.numel() for weight in cell._parameters.values() if weight is not None)


def _make_room(cell: RIMCell, s: Tape, save: bool) -> None:
    """For everything the loop writes, of all steps or only of the last."""
    T, B, N, V = s.values.shape
    K, H, n, m = cell.num_rims, cell.rim_size, cell.input_heads, cell.comm_heads
    lead, new = (K, T if save else 1, B), functools.partial(_new, s.values)
    if not is_one_element(cell, s):
        s.query, s.read = new(*lead, n * cell.input_key_size), new(*lead, V)
        s.attention = new(lead[1], B * n, K, N + 1)
    s.h_in, s.c_in, s.updated, s.gates = new(*lead, H), new(*lead, H), new(*lead, H), new(*lead, 4 * H)
    s.active = s.values.new_full((K, T, B, 1), cell.num_active == K) if s.replayed is None else s.replayed
    if cell.communication:
        s.qkv, s.received = new(*lead, s.comm_qkv.shape[1]), new(*lead, s.comm_out.shape[2])
        s.p = new(lead[1], B * m, K, K).transpose(2, 3)  # who is heard, who listens; in memory the other way round


def _new(like: Tensor, *shape: int) -> Tensor:
    """Room for a tensor whose last row may be read in whole vectors."""
    size = math.prod(shape)
    return like.new_empty(size + _PADDED_BYTES // like.element_size())[:size].view(shape)


def _in_loop(s: Tape) -> dict[str, Tensor]:
    """The weights that the loops multiply with: with one element the input's are not among them."""
    names = _WEIGHTS if hasattr(s, "query") else ("weight_hh", "comm_qkv", "comm_out")
    return {name: weight for name in names if (weight := getattr(s, name)) is not None}


def _threads(layer: _Layer) -> int:
    """Not several for little work: waking them takes longer."""
    return int(min(torch.get_num_threads(), layer.B, 1 + layer.work // 5_000_000))


def _layer(
    cell: RIMCell,
    s: Tape,
    tape: dict[str, Any],
    weights: dict[str, Tensor],
    packed: dict[str, Tensor],
    turned: bool,
) -> _Layer:
    """The struct of loops.c. Weights that are not in ``packed`` come to be there."""
    T, B, N, V = s.values.shape
    K, H, n = cell.num_rims, cell.rim_size, cell.input_heads
    sizes = (T, B, K, H, N, n, cell.input_key_size, V // n, cell.comm_heads, cell.comm_key_size, cell.comm_value_size)
    # if all may be active, nobody competes
    layer = _Layer(*sizes, cell.num_active if s.replayed is None else K, _ASLEEP[cell.asleep])
    layer.work = T * B * sum(weight.numel() for weight in weights.values())
    layer.kept, layer.laid_out = [tape], {}  # tensors live as long as the struct
    _point(layer, tape)
    vector, loops = _PADDED_BYTES // s.values.element_size(), library(s.values.dtype)
    shapes = cell.weight_shapes() | {"bias": (K, 4 * H, 1)}
    for key, weight in weights.items():
        room = packed.get(key)
        if room is None:
            if weight.shape != shapes[key]:
                raise ValueError(f"{key} must have shape {shapes[key]}, got {tuple(weight.shape)}")
            _check_kind(key, weight, s.values)
            columns, inner = weight.shape[1:] if turned else weight.shape[:0:-1]
            room = weight.new_empty(K, inner, columns + -columns % vector)
            loops.pack(weight.contiguous().data_ptr(), *weight.shape, turned, room.data_ptr())
            packed[key] = room
        setattr(layer, key, room.data_ptr())
        layer.kept.append(room)
    return layer


def _point(layer: _Layer, tensors: dict[str, Any]) -> None:
    """Let the struct point to these tensors; to nothing where they are None."""
    heads = {"attention": layer.n, "p": layer.m}  # these have the heads of a row one after the other
    like = tensors["values"]
    for key, tensor in tensors.items():
        order = _TENSORS.get(key)
        if order is None:
            continue
        if tensor is None:
            setattr(layer, key, _Rows())
            layer.laid_out[key] = None
            continue
        _check_kind(key, tensor, like)
        laid_out = tensor.stride(), tensor.shape
        if layer.laid_out.get(key) == laid_out:  # the usual case in a rollout
            getattr(layer, key).at = tensor.data_ptr()
            continue
        layer.laid_out[key] = laid_out
        strides = dict(zip(order, tensor.stride(), strict=False))
        if "t" in strides and tensor.shape[order.index("t")] == 1:
            strides["t"] = 0  # not kept: each step overwrites the one before
        setattr(layer, key, _Rows(tensor.data_ptr(), **strides | {"b": strides["b"] * heads.get(key, 1)}))


def _check_kind(name: str, tensor: Tensor, like: Tensor) -> None:
    """The loops believe what they are updated: whatever they are to read or write is looked at here first."""
    if tensor.dtype is not like.dtype or not tensor.is_cpu:
        raise ValueError(f"{name} must be {like.dtype} on cpu, as the input is, got {tensor.dtype} on {tensor.device}")


def _check_width(name: str, made: Tensor, width: int) -> None:
    """As above, of what was made with the weight called ``name``."""
    if made.shape[-1] != width:
        raise ValueError(f"{name} must make {width} numbers of each row, got {made.shape[-1]}")


def library(dtype: torch.dtype) -> Any:
    """The compiled loops for numbers of this type; None if they are not wanted or cannot be had, which is said once."""
    loops, reason = _load(dtype)
    if reason is not None:
        _warn(reason)
    return loops


def loops_here() -> str:
    """Which loops RIMs run in on this machine, where there is a choice: ``"C"`` or ``"torch"``."""
    return "torch" if _load(torch.float32)[0] is None else "C"


@functools.cache
def _load(dtype: torch.dtype) -> tuple[Any, str | None]:
    """The loops, or None and the reason, unless they are not wanted."""
    if dtype not in _TYPES or os.environ.get("RIMS_RL_NATIVE") == "0":
        return None, None
    try:
        from rims_rl.core.rims.engines import compiling  # not on Windows

        with _one_at_a_time:
            loops = compiling.load_first(
                _SOURCE,
                [(*(f for f in _FLAGS if f not in without), f"-Dreal={_TYPES[dtype]}") for without in _WITHOUT],
            )
    except (ImportError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        return None, str(error)
    pointer, size = ctypes.c_void_p, ctypes.c_long
    loops.forward.argtypes = loops.backward.argtypes = (pointer, size)
    loops.pack.argtypes = (pointer, size, size, size, ctypes.c_int, pointer)
    loops.weight_gradient.argtypes = (pointer, size, pointer, size, pointer, size, ctypes.c_int, pointer)
    return loops, None


def _warn(reason: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the loops of RIMs run in torch, which is slower: those in C cannot be had, since {reason} "
            "(RIMS_RL_NATIVE=0 says that they are not wanted)",
            stacklevel=2,
        )
