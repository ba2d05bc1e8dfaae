"""How RIMs read their input, inside the fast scan: forward and backward, step by step and for whole sequences.

Shapes and names are those of ``torch_loops``, whose tape ``s`` everything here reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rims_rl.core.rims.cell import RIMCell, order
from rims_rl.core.rims.engines.tape import Gradients, Tape, add


class OneElement:
    """Reading one element with one head, or the mean of the values without attention: all hoisted out of the loop.

    Made with ``save`` before the forward loop, and without it before the backward loop, as :class:`Set` is.
    """

    def __init__(self, cell: RIMCell, s: Tape, save: bool | None = None) -> None:
        T, B, _, _ = s.values.shape
        K = cell.num_rims
        self.cell, self.s = cell, s
        if save is not None:
            values = s.values.view(1, T * B, -1).expand(K, -1, -1)
            if s.read_mask is not None:
                values = values * s.read_mask.flatten(1, 2)
            s.reads = torch.bmm(values, s.weight_ih.transpose(1, 2)).view(K, T, B, -1)
            if s.keys is not None:  # minus the logit of x is the log-odds of null
                keys = (s.keys.view(1, T * B, -1) * (-1 / math.sqrt(cell.input_key_size))).expand(K, -1, -1)
                s.probes = torch.bmm(keys, s.input_query).view(K, T, B, -1)
                self.null_of = s.buffers("null", 1, T, (K, B, 1), save)
        elif s.keys is not None:
            self.d_null = s.null * (s.null - 1)  # minus sigmoid', since the attention to x is 1 - null
            self.d_null_of = self.d_null.unbind(1)
        self.reads_of = s.reads.unbind(1)
        if s.keys is not None:
            self.probes_of = s.probes.unbind(1)

    def attend(self, t: int, h: Tensor, active: Tensor) -> None:
        if self.s.keys is not None:
            null = torch.sum(h * self.probes_of[t], -1, keepdim=True, out=self.null_of[t]).sigmoid_()
            if self.cell.num_active < len(null) and self.s.replayed is None:
                first = order(self.cell.forced_first(null, dim=0), dim=0)
                active.scatter_(0, first[: self.cell.num_active], 1)

    def add(self, t: int, bias: Tensor, out: Tensor) -> Tensor:
        if self.s.keys is None:
            return torch.add(bias, self.reads_of[t], out=out)
        return torch.addcmul(bias, 1 - self.null_of[t], self.reads_of[t], out=out)

    def backward(self, t: int, d_inp: Tensor, d_h: Tensor) -> Tensor:
        if self.s.keys is None:
            return d_h
        d_null = self.d_null_of[t].mul_((d_inp * self.reads_of[t]).sum(-1, keepdim=True))
        return d_h.addcmul_(d_null, self.probes_of[t])

    def after_backward(
        self, d_inp: Tensor, h_prev: Tensor, rows: list[Tensor] | None, gradients: Gradients
    ) -> tuple[Tensor | None, Tensor]:
        s, (K, T, B, _) = self.s, d_inp.shape
        values, d_keys = s.values.flatten(0, 2), None
        if s.keys is not None:
            d_probes = (self.d_null * h_prev).permute(1, 2, 0, 3).reshape(T * B, -1)
            d_probes.mul_(-1 / math.sqrt(self.cell.input_key_size))
            d_keys = torch.mm(d_probes, s.input_query.transpose(0, 1).flatten(1).t()).view_as(s.keys)
            d_query = torch.mm(s.keys.flatten(0, 2).t(), d_probes).view(-1, K, self.cell.rim_size).transpose(0, 1)
            add(gradients, "input_query", d_query)
        if rows is None and s.read_mask is None:
            d_reads = d_inp if s.keys is None else d_inp * (1 - s.null)
            d_reads = d_reads.permute(1, 2, 0, 3).reshape(T * B, -1)
            add(gradients, "weight_ih", torch.mm(d_reads.t(), values).view_as(s.weight_ih))
            return d_keys, torch.mm(d_reads, s.weight_ih.flatten(0, 1)).view_as(s.values)
        d_values, d_weight_ih = torch.zeros_like(values), _zeros(gradients, "weight_ih", s.weight_ih.shape, values)
        for k, row in enumerate(rows or [torch.arange(T * B, device=values.device)] * K):
            d_reads, read = d_inp[k].flatten(0, 1)[row], values[row]
            if s.keys is not None:
                d_reads.mul_(1 - s.null[k].flatten(0, 1)[row])
            d_read = torch.mm(d_reads, s.weight_ih[k])
            if s.read_mask is not None:
                mask = s.read_mask[k].flatten(0, 1)[row]
                read, d_read = read.mul_(mask), d_read.mul_(mask)
            d_weight_ih[k].addmm_(d_reads.t(), read)
            d_values.index_add_(0, row, d_read)
        return d_keys, d_values.view_as(s.values)


class Set:
    """Reading a set of elements, or with several heads: attention and read stay in the loop."""

    def __init__(self, cell: RIMCell, s: Tape, save: bool | None = None) -> None:
        T, B, N, V = s.values.shape
        K, n, d, new = cell.num_rims, cell.input_heads, cell.input_key_size, s.values.new_empty
        self.cell, self.s = cell, s
        if save is not None:
            s.key_rows = self._with_null(s.keys * (1 / math.sqrt(d)))  # (T, B * n, N + 1, d)
            s.value_rows = self._with_null(s.values)
            self.query_of = s.buffers("query", 0, T, (B * n, K, d), save)
            self.attention_of = s.buffers("attention", 0, T, (B * n, K, N + 1), save)
            self.read_of = s.buffers("read", 1, T, (K, B, V), save)
        else:
            self.d_logits, self.d_read = torch.empty_like(s.attention), new(T, B * n, K, V // n)
            self.d_query = new(K, T, B, n * d)

    def _with_null(self, x: Tensor) -> Tensor:
        """(T, B, N, n * i) -> (T, B * n, N + 1, i): rows for each head, the last one zero."""
        return F.pad(x.unflatten(-1, (self.cell.input_heads, -1)).transpose(2, 3).flatten(1, 2), (0, 0, 0, 1))

    def attend(self, t: int, h: Tensor, active: Tensor) -> None:
        s, (K, B, _), n = self.s, h.shape, self.cell.input_heads
        query = torch.bmm(h, s.input_query.transpose(1, 2)).view(K, B, n, -1)
        self.query_of[t].view(B, n, K, -1).copy_(query.permute(1, 2, 0, 3))
        logits = torch.bmm(self.query_of[t], s.key_rows[t].transpose(1, 2))
        weights = torch.softmax(logits, -1, out=self.attention_of[t])
        null = weights.view(B, n, K, -1)[..., -1].mean(1)
        if self.cell.num_active < K and s.replayed is None:
            first = order(self.cell.forced_first(null, dim=1), dim=1)
            active.scatter_(0, first[:, : self.cell.num_active].t().unsqueeze(-1), 1)
        read = torch.bmm(weights, s.value_rows[t]).view(B, n, K, -1)
        self.read_of[t].view(K, B, n, -1).copy_(read.permute(2, 0, 1, 3))
        if s.read_mask is not None:
            self.read_of[t].mul_(s.read_mask[:, t])

    def add(self, t: int, bias: Tensor, out: Tensor) -> Tensor:
        return torch.baddbmm(bias, self.read_of[t], self.s.weight_ih.transpose(1, 2), out=out)

    def backward(self, t: int, d_inp: Tensor, d_h: Tensor) -> Tensor:
        s, (K, B, _), n = self.s, d_h.shape, self.cell.input_heads
        d_read = torch.bmm(d_inp, s.weight_ih)
        if s.read_mask is not None:
            d_read.mul_(s.read_mask[:, t])
        self.d_read[t].view(B, n, K, -1).copy_(d_read.view(K, B, n, -1).permute(1, 2, 0, 3))
        d_weights = torch.bmm(self.d_read[t], s.value_rows[t].transpose(1, 2)).mul_(s.attention[t])
        total = d_weights.sum(-1, keepdim=True)
        d_logits = torch.addcmul(d_weights, s.attention[t], total, value=-1, out=self.d_logits[t])
        d_query = torch.bmm(d_logits, s.key_rows[t]).view(B, n, K, -1)
        self.d_query[:, t].view(K, B, n, -1).copy_(d_query.permute(2, 0, 1, 3))
        return torch.baddbmm(d_h, self.d_query[:, t], s.input_query)

    def after_backward(
        self, d_inp: Tensor, h_prev: Tensor, rows: list[Tensor] | None, gradients: Gradients
    ) -> tuple[Tensor, Tensor]:
        s, (T, B, N, _), n = self.s, self.s.values.shape, self.cell.input_heads

        def per_element(a: Tensor, b: Tensor) -> Tensor:  # (T, B * n, K, N + 1), (T, B * n, K, i) -> (T, B, N, n * i)
            product = torch.matmul(a[..., :N].transpose(2, 3), b)
            return product.view(T, B, n, N, -1).transpose(2, 3).flatten(3)

        d_keys = per_element(self.d_logits, s.query).mul_(1 / math.sqrt(self.cell.input_key_size))
        d_values = per_element(s.attention, self.d_read)
        add_weight_gradient(gradients, "input_query", self.d_query, h_prev, rows)
        add_weight_gradient(gradients, "weight_ih", d_inp, s.read, rows)
        return d_keys, d_values


def is_one_element(cell: RIMCell, s: Tape) -> bool:
    plain = not (cell.position_competition or cell.own_elements)
    return s.keys is None or (s.keys.shape[2] == 1 and cell.input_heads == 1 and plain)


def add_weight_gradient(
    gradients: Gradients, name: str, d_out: Tensor, inp: Tensor, rows: list[Tensor] | None = None
) -> None:
    """Add (K, T, B, o) times (K, T, B, i), summed over steps and batch, to the gradient (K, o, i) called ``name``.

    ``rows``: for each RIM the rows of (T, B), flattened, that are not zero: the others are left out.
    """
    d_out, inp = d_out.flatten(1, 2), inp.flatten(1, 2)
    if rows is None:
        add(gradients, name, torch.bmm(d_out.transpose(1, 2), inp))
        return
    gradient = _zeros(gradients, name, (d_out.shape[0], d_out.shape[2], inp.shape[2]), inp)
    for k, row in enumerate(rows):
        gradient[k].addmm_(d_out[k][row].t(), inp[k][row])


def _zeros(gradients: Gradients, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """The gradient so far, zeros at first."""
    if name not in gradients:
        gradients[name] = like.new_zeros(shape)
    return gradients[name]
