"""What the fast loops read and, as they run, what their backward will want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

WEIGHTS = ("input_query", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "comm_qkv", "comm_out", "comm_gate")
Maybe = Any  # a tensor, or None where the layer has no such part
Gradients = dict[str, Tensor]  # of weights, summed up over the pieces of a sequence


class Tape:
    """Of one piece of a sequence. Shapes and letters are those of ``torch_loops``."""

    keep: Maybe  # (T, B): 0 where an episode starts, 1 elsewhere; None: nowhere
    keys: Maybe  # (T, B, N, n * d); None: no input attention
    values: Tensor  # (T, B, N, V)
    input_query: Maybe
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    comm_qkv: Maybe
    comm_out: Maybe
    comm_gate: Maybe
    read_mask: Maybe  # (K, T, B, V): what dropout multiplies with
    message_mask: Maybe  # (K, T, B, H)

    replayed: Maybe = None  # (K, T, B, 1): who is active, if nobody competes for it
    keep_active: bool = False  # nothing is kept for a backward, but ``active`` is wanted

    # What follows is there once it is written.

    # how RIMs read, see ``reading``: one element
    reads: Maybe  # (K, T, B, G); in C None if it is done in the loop
    probes: Tensor  # (K, T, B, H)
    null: Tensor  # (K, T, B, 1), in C (T, B, K, 1): attention to it
    # or a set of them
    key_rows: Tensor  # (T, B * n, N + 1, d)
    value_rows: Tensor  # (T, B * n, N + 1, V / n)
    query: Tensor  # (T, B * n, K, d)
    attention: Tensor  # (T, B * n, K, N + 1); in C (T, B, n, K, N + 1)
    read: Tensor  # (K, T, B, V)

    # what happens then
    active: Tensor  # (K, T, B, 1)
    gates: Tensor  # (T, K, B, G)
    hs: Tensor  # (K, T + 1, B, H)
    cs: Tensor
    state_n: Tensor  # (K, T, B, H), of a GRU
    qkv: Tensor  # (T, K, B, m * (2 e + v))
    p: Tensor  # (T, B * m, K who is heard, K who listens); in C (T, B, m, S who listens, K who is heard)
    received: Tensor  # (K, T, B, m * v): values, before the output projection

    # In C only those who are computed have a place, S at each step: query, read, gates, qkv, received and what follows
    # are (T, B, S, .).
    slots: Tensor  # (T, B, K) int: the place of each RIM, -1 if it keeps its state
    h_0: Tensor  # (B, K * H): the first state
    h: Tensor  # (T, B, K * H): after each step
    c_in: Tensor  # c going into a step, of an LSTM
    from_state: Tensor  # what a GRU's gates get from h
    updated: Tensor  # h before communication
    message: Tensor  # of a gated message its two factors, (T, B, S, 2 * H)
    read_gates: Maybe  # as ``reads``
    kept_at: Tensor  # (T, B, K) int: which row of ``kept`` holds what others hear of one without a place
    kept: Tensor  # (B, rows, m * (2 e + v))

    def __init__(self, **tensors: Maybe) -> None:
        vars(self).update(tensors)

    def buffers(self, name: str, dim: int, steps: int, shape: tuple[int, ...], save: bool) -> Sequence[Tensor]:
        """One buffer for each step. Kept for the backward they are views, along ``dim``, of one tensor on the tape; if
        not they are all the same one, which each step overwrites."""
        if not save:
            buffer = self.values.new_empty(shape)
            setattr(self, name, buffer.unsqueeze(dim))
            return [buffer] * steps
        whole = self.values.new_empty(*shape[:dim], steps, *shape[dim:])
        setattr(self, name, whole)
        return whole.unbind(dim)


def add(gradients: Gradients, name: str, gradient: Tensor) -> None:
    """Sum up over the pieces of a sequence."""
    gradients[name] = gradients[name].add_(gradient) if name in gradients else gradient
