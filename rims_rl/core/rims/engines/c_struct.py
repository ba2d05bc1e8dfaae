"""The struct by which ``c_loops`` tells ``loops.c`` where everything is, and the compiled loops themselves."""

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
from rims_rl.core.rims.engines.reading import is_one_element
from rims_rl.core.rims.engines.tape import Tape

_SOURCE = Path(__file__).with_name("loops.c")
_PADDED_BYTES = 64  # the widest vector
_PANEL_BYTES = 128  # two of them: columns of weights that lie side by side, see ``pack`` in loops.c
# Tuned for some processors, gcc does without fused multiply-adds in some tiles: then a row would depend, in its last
# bits, on how many are beside it.
_FLAGS = ("-O3", "-march=native", "-mtune=generic", "-fopenmp", "-shared", "-fPIC", f"-DPANEL_BYTES={_PANEL_BYTES}")
_RARELY = 64  # times that a RIM reads
_WITHOUT = ((), ("-fopenmp",), ("-fopenmp", "-march=native", "-mtune=generic"))  # what some compilers do not know
_TYPES = {torch.float32: "float", torch.float64: "double"}

ASLEEP = {"keep": 0, "drift": 1, "listen": 2, "half-listen": 2}  # as the loops count them; of those who do not keep
_SIZES = (
    "T", "B", "K", "H", "N", "n", "d", "w", "m", "e", "v", "S", "num_active", "gru", "top_k", "saves",
    "keepers", "would_be",
)  # fmt: skip
# What the struct of loops.c holds, in its order, and along which of steps t, RIMs or places k and batch rows b it goes.
_TENSORS = {
    "keep": "tb", "keys": "tb", "values": "tb", "reads": "ktb", "attention": "tb", "null": "tbk",
    "h_0": "bk", "c_0": "bk", "h": "tbk", "c": "bk", "active": "ktb",
    "query": "tbk", "read": "tbk", "read_gates": "tbk",
    "gates": "tbk", "from_state": "tbk", "c_in": "tbk", "updated": "tbk", "qkv": "tbk", "p": "tb", "received": "tbk",
    "message": "tbk", "kept": "bk", "read_mask": "ktb", "message_mask": "ktb",
    "d_out": "tbk", "d_h": "bk", "d_c": "bk", "d_gates": "tbk", "d_rec": "tbk", "d_message": "tbk", "d_qkv": "tbk",
    "d_kept": "bk", "d_query": "tbk", "d_keys": "tb", "d_values": "tb",
}  # fmt: skip
_STATES = ("h_0", "c_0", "h", "c", "d_out", "d_h", "d_c")  # these have the units of all RIMs side by side
# In their order there.
_WEIGHTS = ("bias", "bias_hh", "input_query", "weight_ih", "weight_hh", "comm_qkv", "comm_out", "comm_gate")
_ROOM = ("zeros", "preference", "own", "asleep", "slots", "kept_at")

_one_at_a_time = threading.Lock()  # two threads would write to the same files
_warned = False


class _Rows(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("t", ctypes.c_long), ("k", ctypes.c_long), ("b", ctypes.c_long))


class _Weights(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("rim", ctypes.c_long), ("panel", ctypes.c_long), ("row", ctypes.c_long))


class Layer(ctypes.Structure):
    """``layer`` of loops.c. Tensors live as long as it does."""

    _fields_ = (
        *((name, ctypes.c_long) for name in _SIZES),
        ("null_bound", ctypes.c_double),
        *((name, _Rows) for name in _TENSORS),
        *((name, _Weights) for name in _WEIGHTS),
        *((name, ctypes.c_void_p) for name in _ROOM),
    )
    threads: int
    held: list[Any]
    laid_out: dict[str, Any]


class Prepared:
    """What the loops make of a layer's weights: them packed, and structs for which no thread has a use just now."""

    def __init__(self) -> None:
        self.packed: dict[str, Tensor] = {}
        self.idle: defaultdict[torch.Size, list[Layer]] = defaultdict(list)


def make_layer(cell: RIMCell, s: Tape, tape: dict[str, Any], packed: dict[str, Tensor], turned: bool) -> Layer:
    """The struct, of tensors in ``tape``. Weights that are not in ``packed`` come to be there, ``turned`` for the
    forward."""
    T, B, N, V = s.values.shape
    K, H, n = cell.num_rims, cell.rim_size, cell.input_heads
    sizes = (T, B, K, H, N, n, cell.input_key_size, V // n, cell.comm_heads, cell.comm_key_size, cell.comm_value_size)
    competes = cell.competes and s.replayed is None
    layer = Layer(*sizes, s.gates.shape[2], cell.num_active if competes else 0, cell.cell == "gru")
    layer.top_k, layer.saves = cell.comm_top_k or 0, len(s.slots) == T
    layer.keepers = cell.num_active if cell.position_competition else 0
    layer.would_be = cell.hear == "updates"
    layer.null_bound = cell.null_bound if cell.activation == "at_most" else math.inf
    layer.held, layer.laid_out = [tape], {}
    weights = _in_loop(cell, s, turned)
    layer.threads = _threads(T, B, sum(weight.numel() for weight in weights.values()))
    room = {"zeros": s.values.new_zeros(max(H, V)), "preference": _preference(cell, s.values), "slots": s.slots}
    room["asleep"] = asleep_of(cell)
    if cell.own_elements:
        room["own"] = torch.tensor(cell.rims, dtype=torch.int32)
    if cell.communication:
        room["kept_at"] = s.kept_at
    for key, tensor in room.items():
        setattr(layer, key, None if tensor is None else tensor.data_ptr())
    layer.held.append(room)
    point(layer, tape)
    shapes, G = cell.weight_shapes(), s.gates.shape[-1]
    for key, weight in weights.items():
        made = packed.get(key)
        if made is None:
            wanted = {"bias": (K, G, 1), "bias_hh": (K, G, 1), "weight_ih": (K, G, V)}.get(key) or shapes[key]
            if weight.shape != wanted:
                raise ValueError(f"{key} must have shape {wanted}, got {tuple(weight.shape)}")
            _check_kind(key, weight, s.values)
            made = weight.contiguous()
            if key != "weight_ih" or not _as_it_is(cell, s, turned):
                made = _pack(made, turned, layer.threads)
            packed[key] = made  # only now: other threads may look
        rim, *panel, row = made.stride()[:-1]
        if not panel and not turned:
            panel = [_PANEL_BYTES // made.element_size()]
        setattr(layer, key, _Weights(made.data_ptr(), rim, panel[0] if panel else 0, row))
        layer.held.append(made)
    return layer


def asleep_of(cell: RIMCell) -> Tensor:
    """What each RIM does while it is not active, as the loops count it."""
    return torch.tensor([0 if k < cell.num_stores else ASLEEP[cell.asleep] for k in cell.rims], dtype=torch.int32)


def _as_it_is(cell: RIMCell, s: Tape, turned: bool) -> bool:
    """Whether the loops take weight_ih as it is, if whole vectors can be read of it: in the forward where it is used so
    rarely that packing would not pay, in the backward where many rows share it."""
    V = s.values.shape[-1]
    if not is_one_element(cell, s) or V * s.values.element_size() % _PADDED_BYTES:
        return False
    T, B = s.values.shape[:2]
    return not turned or (T > 1 and T * B * cell.num_active < _RARELY * cell.num_rims)


def _pack(weight: Tensor, turned: bool, threads: int) -> Tensor:
    """Weights in panels, (RIMs, panels, inner, columns of a panel)."""
    (K, R, C), size = weight.shape, weight.element_size()
    columns, inner = (R, C) if turned else (C, R)
    made = weight.new_empty(K, -(-columns * size // _PANEL_BYTES), inner, _PANEL_BYTES // size)
    library(weight.dtype).pack(weight.data_ptr(), K, R, C, turned, threads, made.data_ptr())
    return made


def point(layer: Layer, tensors: dict[str, Any]) -> None:
    """Let the struct point to these tensors; to nothing where they are None."""
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
        if key in _STATES:
            strides["k"] = layer.H
        setattr(layer, key, _Rows(tensor.data_ptr(), **strides))


def new(like: Tensor, *shape: int) -> Tensor:
    """Room for a tensor whose last row may be read in whole vectors."""
    size = math.prod(shape)
    return like.new_empty(size + _PADDED_BYTES // like.element_size())[:size].view(shape)


def padded(tensor: Tensor) -> Tensor:
    """A tensor from :func:`new` as it is; a copy with room behind it if somebody has copied it without."""
    end = tensor.storage_offset() * tensor.element_size() + tensor.nbytes
    if tensor.untyped_storage().nbytes() >= end + _PADDED_BYTES or not tensor.is_floating_point():
        return tensor
    return new(tensor, *tensor.shape).copy_(tensor)


def _in_loop(cell: RIMCell, s: Tape, forward: bool) -> dict[str, Tensor]:
    """The weights that the loops multiply with: biases only in the forward, and the input's not if that was done
    beforehand."""
    weights = {name: getattr(s, name) for name in ("weight_hh", "comm_qkv", "comm_out", "comm_gate", "input_query")}
    if not forward or s.reads is None:
        weights["weight_ih"] = s.weight_ih
    if forward:
        gru = cell.cell == "gru"
        weights["bias"] = (s.bias_ih if gru else s.bias_ih + s.bias_hh).unsqueeze(-1)
        weights["bias_hh"] = s.bias_hh.unsqueeze(-1) if gru else None
    return {name: weight for name, weight in weights.items() if weight is not None}


def _preference(cell: RIMCell, like: Tensor) -> Tensor | None:
    """What the competition adds for each RIM."""
    if not cell.balance and cell.forced is None:
        return None
    preference = cell.balance_bias.to(like) if cell.balance else like.new_zeros(cell.num_rims)
    return preference.contiguous() if cell.forced is None else preference.index_fill(0, cell.forced, math.inf)


def _threads(steps: int, batch: int, weights: int) -> int:
    """Not several for little work: waking them takes longer."""
    return int(min(torch.get_num_threads(), batch, 1 + steps * batch * weights // 5_000_000))


def _check_kind(name: str, tensor: Tensor, like: Tensor) -> None:
    """The loops believe what they are told: whatever they are to read or write is looked at here first."""
    if tensor.dtype is not like.dtype or not tensor.is_cpu:
        raise ValueError(f"{name} must be {like.dtype} on cpu, as the input is, got {tensor.dtype} on {tensor.device}")


def library(dtype: torch.dtype) -> Any:
    """The compiled loops for numbers of this type; None if they are not wanted or cannot be had, which is said once."""
    loops, reason = _load(dtype)
    if reason is not None:
        _warn(reason)
    return loops


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_library(dtype: torch.dtype) -> bool:
    """Whether there is one. Compilers do not look in here."""
    return library(dtype) is not None


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
    loops.pack.argtypes = (pointer, size, size, size, ctypes.c_int, size, pointer)
    loops.weight_gradient.argtypes = (pointer, size, ctypes.c_int, size, size, ctypes.c_int, ctypes.c_int, pointer)
    loops.value_gradient.argtypes = (pointer, size)
    loops.bias_gradient.argtypes = (pointer, size, pointer, pointer)
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
