"""What the two fast engines share: a sequence in pieces, one autograd function with a hand-written backward."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rims_rl.core.rims.cell import MECHANISM, RIMCell
from rims_rl.core.rims.engines.engine import Engine
from rims_rl.core.rims.engines.tape import WEIGHTS, Gradients, Tape
from rims_rl.core.rims.trace import Records

# Longer sequences are run in pieces: malloc keeps some tens of megabytes of freed buffers for the next use, gives the
# rest back to the system, which then has to clear every page of it again. This many gates, in float32, are 12 MB.
PIECE = 3_000_000
PLAIN = frozenset((nn.Parameter, Tensor))
_PAPER = ("zero", "hard", "null")


class Loops(Engine):
    """Loops over the steps of a piece, forward and backward, for layers that compute the paper's equations."""

    key: str  # among the engines of a cell's class
    asleep: tuple[str, ...] = ("keep",)  # what it can do with RIMs that are not active
    activation: tuple[str, ...] = ("exactly",)  # how many it lets be active
    hear: tuple[str, ...] = ("states",)  # what it lets them hear
    communication: tuple[bool | str, ...] = (True, False)
    balances = False  # whether it knows of ``balance``

    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        if self.key not in cell.engines or not MECHANISM.isdisjoint(vars(cell)):
            return f"{type(cell).__name__} has equations of its own"
        names = ("asleep", "activation", "hear", "communication")
        known = all(getattr(cell, name) in getattr(self, name) for name in names)
        if not known or self.balances < (cell.balance > 0) or (cell.start, cell.selection, cell.competition) != _PAPER:
            return "it has options that are not the paper's"
        # pruning has hooks; parametrizations are a module in the cell; torch.export puts stand-ins in place of weights
        made = cell.has_hooks() or "parametrizations" in cell._modules
        if made or not (type(cell._parameters["weight_hh"]) in PLAIN or torch.compiler.is_exporting()):
            return "it has hooks, or weights that are made of others"
        return None

    def places(self, cell: RIMCell, replays: bool) -> int:
        """For how many RIMs a step is written down."""
        return cell.num_rims

    @abstractmethod
    def forward(
        self, cell: RIMCell, s: Tape, h: Tensor, c: Tensor, save: bool, output: Tensor, shared: dict[str, Tensor]
    ) -> Any:
        """Write h of every step into ``output`` (T, B, K * H), and return the last state. With ``save``, what the
        backward wants goes onto the tape ``s``. What is made of the weights can be ``shared`` by all pieces."""

    @abstractmethod
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
        """Gradients of keys, values and the first state; those of the weights are added to ``gradients``."""

    @abstractmethod
    def record(self, cell: RIMCell, s: Tape, elements: int) -> tuple[Tensor, Tensor]:
        """What a trace wants of a piece: attention (T, B, K, N + 1) and communication (T, B, K, K)."""

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
        if starts is not None and not starts.any():
            starts = None  # the usual case in a rollout
        keys, values, weights = before_the_loop(cell, x)
        keep = None if starts is None else (starts == 0).to(x.dtype)
        if replayed is not None:
            replayed = replayed.to(x.dtype).permute(2, 0, 1).unsqueeze(-1)  # as the tape has it
        given = {"keep": keep, "replayed": replayed}
        tensors = (keys, values, h, c, *weights.values())
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            result = _Scan.apply(self, cell, records, x.shape[2], given, *tensors)  # type: ignore[no-untyped-call]
        else:
            save = records is not None and not records.only_active
            result = self._run(cell, records, x.shape[2], given, tensors, save)[:3]
        return result  # type: ignore[no-any-return]

    def _run(
        self,
        cell: RIMCell,
        records: Records | None,
        elements: int,
        given: dict[str, Tensor | None],
        tensors: tuple[Any, ...],
        save: bool,
    ) -> tuple[Tensor, Tensor, Tensor, list[Tape]]:
        """The forward, piece by piece. Returns also what the backward wants."""
        keys, values, h, c, *weights = tensors
        T, B = values.shape[:2]
        places = self.places(cell, given["replayed"] is not None)
        steps = max(1, PIECE // (B * places * cell.bias_ih.shape[1]))
        output, tapes = values.new_empty(T, B, cell.hidden_size), []
        shared: dict[str, Tensor] = {}
        for begin in range(0, T, steps):
            piece = slice(begin, begin + steps)
            of_piece = {
                name: None if x is None else x[piece]
                for name, x in (("keep", given["keep"]), ("keys", keys), ("values", values))
            }
            if given["replayed"] is not None:
                of_piece["replayed"] = given["replayed"][:, piece].contiguous()
            lead = (cell.num_rims, min(steps, T - begin), B)
            read_mask = _mask(cell, cell.input_dropout, values, *lead, values.shape[-1])
            message_mask = None
            if cell.communication:
                message_mask = _mask(cell, cell.comm_dropout, values, *lead, cell.rim_size)
            of_layer = dict(zip(WEIGHTS, weights, strict=True))
            tape = Tape(**of_piece, **of_layer, read_mask=read_mask, message_mask=message_mask)
            if records is not None and not save:
                tape.keep_active = True
            h, c = self.forward(cell, tape, h, c, save, output[piece], shared)
            if records is not None:
                active = tape.active.squeeze(-1).permute(1, 2, 0) != 0
                records.add(active, *(() if records.only_active else self.record(cell, tape, elements)))
            if save:
                tapes.append(tape)
        return output, h.clone(), c, tapes  # until now h was the end of the output


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        loops: Loops,
        cell: RIMCell,
        records: Records | None,
        elements: int,
        given: dict[str, Tensor | None],
        *tensors: Any,
    ) -> Any:
        output, h, c, tapes = loops._run(cell, records, elements, given, tensors, save=True)
        ctx.loops, ctx.cell, ctx.names = loops, cell, list(vars(tapes[0]))
        ctx.save_for_backward(*(tensor for tape in tapes for tensor in vars(tape).values()))
        return output, h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_h: Tensor, d_c: Tensor) -> Any:
        if any(map(torch._C._functorch.is_legacy_batchedtensor, (d_out, d_h, d_c))):
            raise RuntimeError(
                "the fast loops of RIMs take the gradient of one output at a time: leave out is_grads_batched and "
                "vectorize, or use torch.func"
            )
        tensors, size = ctx.saved_tensors, len(ctx.names)
        pieces = [tensors[begin : begin + size] for begin in range(0, len(tensors), size)]
        gradients: Gradients = {}
        shared: dict[str, Tensor] = {}
        of_input: list[Any] = []  # of keys and values, last piece first
        for piece in reversed(pieces):
            tape = Tape(**dict(zip(ctx.names, piece, strict=True)))
            d_out, here = d_out.tensor_split([len(d_out) - len(tape.values)])
            *of_piece, d_h, d_c = ctx.loops.backward(ctx.cell, tape, here, d_h, d_c, gradients, shared)
            of_input.append(of_piece)
        joined = (None if part[0] is None else torch.cat(part[::-1]) for part in zip(*of_input, strict=True))
        return None, None, None, None, None, *joined, d_h, d_c, *map(gradients.get, WEIGHTS)


def before_the_loop(cell: RIMCell, x: Tensor) -> tuple[Tensor | None, Tensor, dict[str, Any]]:
    """Keys, values and the weights of the loop. W^v is linear, and so is what follows: where ``x`` is narrower than its
    values, it is read as it is, with one weight in place of both."""
    keys = F.linear(x, cell.input_key) if cell.input_attention else None
    values = x if cell.input_attention else x.mean(2, keepdim=True)
    weights = {name: getattr(cell, name, None) for name in WEIGHTS}
    if not _folds(cell, values):
        return keys, F.linear(values, cell.input_value), weights
    of_heads = cell.input_value.view(cell.input_heads, -1, cell.input_size)
    weights["weight_ih"] = torch.einsum(
        "kghv,hvi->kghi", cell.weight_ih.unflatten(2, of_heads.shape[:2]), of_heads
    ).flatten(2)
    return keys, values.repeat(1, 1, 1, cell.input_heads), weights


def _folds(cell: RIMCell, x: Tensor) -> bool:
    """Whether that pays: if making the one weight takes less than it saves. Exported programs take any batch."""
    T, B, _, D = x.shape
    V, narrower = cell.input_value_size, cell.input_value_size - cell.input_heads * D
    if T == 1 or (cell.training and cell.input_dropout) or torch.compiler.is_exporting():
        return False
    return T * B * cell.num_active * narrower > cell.num_rims * V * D


def _mask(cell: RIMCell, rate: float, like: Tensor, *shape: int) -> Tensor | None:
    """What dropout multiplies with, for all steps; None if it does nothing."""
    return F.dropout(like.new_ones(shape), rate) if cell.training and rate > 0 else None
