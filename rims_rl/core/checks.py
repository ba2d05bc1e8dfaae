"""What a core is given, looked at before it is used: one sentence names what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


def check_input(x: Any, like: Tensor) -> None:
    """An error if ``x`` is no tensor that can be multiplied with ``like``, a weight."""
    if isinstance(x, PackedSequence):
        raise TypeError(
            "x must be a tensor, got PackedSequence; torch.nn.utils.rnn.pad_packed_sequence makes one of it"
        )
    _check_kind("x", x, like)


def check_state(state: Any, shape: tuple[int, ...], like: Tensor) -> None:
    """An error if ``state`` is not a pair of tensors of this shape, with the type and on the device of ``like``."""
    if not isinstance(state, Sequence) or len(state) != 2:
        got = f"{len(state)} of them" if isinstance(state, Sequence) else type(state).__name__
        raise TypeError(f"state must be a pair of tensors (h, c), got {got}")
    h, c = state
    for name, tensor in (("state: h", h), ("state: c", c)):
        _check_kind(name, tensor, like)
        _check_shape(name, tensor, shape)


def check_starts(starts: Any, shape: tuple[int, ...], like: Tensor) -> None:
    """An error if ``starts`` is not a tensor of this shape on the device of ``like``; of what type does not matter."""
    _check_kind("episode_starts", starts, like, any_dtype=True)
    _check_shape("episode_starts", starts, shape)


def require(condition: bool, message: str) -> None:
    """A ValueError with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(message)


def _check_kind(name: str, tensor: Any, like: Tensor, any_dtype: bool = False) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{name} must be a dense tensor, got {tensor.layout}; `to_dense()` would do")
    if tensor.device != like.device:
        raise ValueError(f"{name} must be on {like.device}, as the weights are, got {tensor.device}")
    if tensor.dtype is like.dtype or any_dtype:
        return
    if not (tensor.is_floating_point() and torch.is_autocast_enabled(tensor.device.type)):  # which casts by itself
        raise ValueError(
            f"{name} must be {like.dtype}, as the weights are, got {tensor.dtype}; `to({like.dtype})` would do"
        )


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
