"""One RIM layer over a whole sequence, fast: the equations of ``cell``, with a hand-written backward.

Where the time of a plain autograd loop goes, and what is done about it here:

1. What does not depend on the state is computed for all steps before the loop: keys, values and, with one element and
   one head, everything on the input side. There softmax over {x, null} is a sigmoid, since the null logit is 0, and
   what RIM k reads is that number times x W^v. So the loop only scales ``reads`` = (x W^v) W_ih of each RIM, and the
   logit is h . (W^q_k key) with the second factor, ``probes``, known beforehand.
2. In the backward loop only the recurrent products are left. Derivatives of the nonlinearities are computed for all
   steps at once before it, with the mask of active RIMs multiplied in; weight gradients are one large product per RIM
   after it, over the steps at which that RIM was active.
3. torch's sigmoid is several times faster than its tanh on a CPU, and softmax over a dimension that is not the last.

Shapes: T steps, B batch, K RIMs, H units per RIM, G gates * H, N elements, V size of what is read, n heads of key size
d (input) or e (communication, values v). Inside the loop the RIM comes first, (K, B, .), for batched products.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rims_rl.core.rims.cell import RIMCell, smallest
from rims_rl.core.rims.engines.loops import Loops
from rims_rl.core.rims.engines.reading import OneElement, Set, add_weight_gradient, is_one_element
from rims_rl.core.rims.engines.tape import Gradients, Tape, add


class TorchLoops(Loops):
    name = key = "torch"

    def refusal(self, cell: RIMCell, x: Tensor) -> str | None:
        if cell.position_competition or cell.own_elements:
            return "the loops in torch have no position_competition or own_elements"
        return super().refusal(cell, x)

    def forward(
        self, cell: RIMCell, s: Tape, h: Tensor, c: Tensor, save: bool, output: Tensor, shared: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        T, B = s.values.shape[:2]
        K, H, G = cell.num_rims, cell.rim_size, s.weight_hh.shape[1]
        n, e, v = cell.comm_heads, cell.comm_key_size, cell.comm_value_size
        hs, cs = s.buffers("hs", 1, T + 1, (K, B, H), True), s.buffers("cs", 1, T + 1, (K, B, H), save)
        if save:
            hs[0].copy_(_split(h, K))
            cs[0].copy_(_split(c, K))
        else:
            hs, cs = [_split(h, K), *hs[1:]], [_split(c, K), *cs[1:]]
        gates_of = s.buffers("gates", 0, T, (K, B, G), save)
        s.active = s.values.new_full((K, T, B, 1), cell.num_active == K) if s.replayed is None else s.replayed
        active_of = s.active.unbind(1)
        if cell.cell == "gru":
            state_n_of = s.buffers("state_n", 1, T, (K, B, H), save)
        if cell.communication:
            qkv_of = s.buffers("qkv", 0, T, (K, B, n * (2 * e + v)), save)
            p_of = s.buffers("p", 0, T, (B * n, K, K), save)
            received_of = s.buffers("received", 1, T, (K, B, n * v), save)
            repeat = 1 if save else T  # of what was not kept there is only one step
            q_of, k_of, v_of = (part.unbind(0) * repeat for part in _by_head(s.qkv, n).split([e, e, v], -1))
            received_by_head_of = _by_head(s.received.transpose(0, 1), n).unbind(0) * repeat
            w_qkv, w_out = s.comm_qkv.transpose(1, 2), s.comm_out.transpose(1, 2)
        read = OneElement(cell, s, save) if is_one_element(cell, s) else Set(cell, s, save)
        resets = _resets(s.keep, T)
        bias_hh, w_hh = s.bias_hh.unsqueeze(1), s.weight_hh.transpose(1, 2)
        bias = s.bias_ih.unsqueeze(1) if cell.cell == "gru" else s.bias_ih.unsqueeze(1) + bias_hh

        for t in range(T):
            h, c, active = hs[t], cs[t], active_of[t]
            if resets[t]:
                alive = s.keep[t].view(1, B, 1) != 0  # chosen, not multiplied: zero times infinity is not a number
                h, c = torch.where(alive, h, 0), torch.where(alive, c, 0)
            read.attend(t, h, active)
            gates = read.add(t, bias, out=gates_of[t])
            if cell.cell == "gru":
                from_state = torch.baddbmm(bias_hh, h, w_hh)
                state_n = state_n_of[t].copy_(from_state[..., 2 * H :])
                r, z = gates[..., : 2 * H].add_(from_state[..., : 2 * H]).sigmoid_().chunk(2, -1)
                h_new = torch.lerp(gates[..., 2 * H :].addcmul_(r, state_n).tanh_(), h, z)
                cs[t + 1].copy_(c)
            else:
                i, f, g, o = gates.baddbmm_(h, w_hh).chunk(4, -1)
                g.add_(g)
                gates.sigmoid_()  # so tanh of what was in g is 2 g - 1
                c_new = torch.mul(f, c).sub_(i).addcmul_(i, g, value=2)
                h_new = torch.neg(o).addcmul_(o, torch.add(c_new, c_new).sigmoid_(), value=2)
                torch.lerp(c, c_new, active, out=cs[t + 1])
            # lerp with a weight of exactly 0 or 1 gives exactly one of its ends: inactive RIMs keep their state, bit
            # for bit
            updated = h_new if cell.num_active == K else torch.lerp(h, h_new, active)
            if not cell.communication:
                hs[t + 1].copy_(updated)
                continue
            p = p_of[t]
            torch.bmm(updated, w_qkv, out=qkv_of[t])
            # (B * n, K who is heard, K who listens)
            logits = torch.baddbmm(p, k_of[t], q_of[t].transpose(1, 2), beta=0, alpha=1 / math.sqrt(e))
            if cell.comm_top_k is not None:
                logits.masked_fill_(~smallest(-logits, cell.comm_top_k, dim=1), -math.inf)
            torch.softmax(logits, 1, out=p)
            received_by_head_of[t].copy_(torch.bmm(p.transpose(1, 2), v_of[t]))
            if s.message_mask is None:
                h_new = torch.baddbmm(updated, received_of[t], w_out)
            else:
                h_new = torch.addcmul(updated, torch.bmm(received_of[t], w_out), s.message_mask[:, t])
            torch.lerp(updated, h_new, active, out=hs[t + 1])
        output.view(T, B, K, H).copy_(s.hs[:, 1:].permute(1, 2, 0, 3))
        return output[-1], _join(cs[T]).clone()  # of one RIM it would be a part of the tape

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
        K, T, B, _ = s.active.shape
        H, n, e, v = cell.rim_size, cell.comm_heads, cell.comm_key_size, cell.comm_value_size
        d_outs = d_out.view(T, B, K, H).transpose(1, 2).unbind(0)
        d_h, d_c = _split(d_h, K).contiguous(), _split(d_c, K)  # what is added to d_h takes its layout
        h_prev, c_prev = s.hs[:, :-1], s.cs[:, :-1]
        if s.keep is not None:
            alive = s.keep.unsqueeze(-1) != 0
            h_prev, c_prev = torch.where(alive, h_prev, 0), torch.where(alive, c_prev, 0)
        # d_rec, d_inp: gradients of what goes into the gates from the state and from the input. They start as
        # derivatives of the nonlinearities, and are multiplied in the loop by what comes from above. For an LSTM they
        # are the same.
        if cell.cell == "gru":
            d_rec, d_inp, keep_h, updated = _gru_derivatives(s, h_prev)
            factors = [(d.unflatten(-1, (3, H)).unbind(1)) for d in (d_rec, d_inp)]
        else:
            d_rec, to_c, keep_h, keep_c, updated = _lstm_derivatives(s, h_prev, c_prev)
            d_inp = d_rec
            to_c_of, keep_c_of = to_c.unbind(1), keep_c.unbind(1)
            ifg_of, o_of = d_rec[..., : 3 * H].unflatten(-1, (3, H)).unbind(1), d_rec[..., 3 * H :].unbind(1)
        d_rec_of, d_inp_of, keep_h_of, active_of = (x.unbind(1) for x in (d_rec, d_inp, keep_h, s.active))
        if cell.communication:
            d_message, d_qkv = torch.empty_like(updated), updated.new_empty(K, T, B, n * (2 * e + v))
            d_message_of, d_qkv_of, p_of = d_message.unbind(1), d_qkv.unbind(1), s.p.unbind(0)
            q_of, k_of, v_of = (part.unbind(0) for part in _by_head(s.qkv, n).split([e, e, v], -1))
            d_q_of, d_k_of, d_v_of = (
                part.unbind(0) for part in _by_head(d_qkv.transpose(0, 1), n).split([e, e, v], -1)
            )
        read = OneElement(cell, s) if is_one_element(cell, s) else Set(cell, s)
        resets = _resets(s.keep, T)

        for t in range(T - 1, -1, -1):
            d_updated = d_h = d_h + d_outs[t]
            if cell.communication:
                p, d_active = p_of[t], torch.mul(d_h, active_of[t], out=d_message_of[t])
                if s.message_mask is not None:
                    d_active.mul_(s.message_mask[:, t])
                d_read = _by_head(torch.bmm(d_active, s.comm_out), n)
                d_p = torch.baddbmm(p, v_of[t], d_read.transpose(1, 2), beta=0, alpha=1 / math.sqrt(e)).mul_(p)
                d_logits = d_p.addcmul_(p, d_p.sum(1, keepdim=True), value=-1)
                d_q_of[t].copy_(torch.bmm(d_logits.transpose(1, 2), k_of[t]))
                d_k_of[t].copy_(torch.bmm(d_logits, q_of[t]))
                d_v_of[t].copy_(torch.bmm(p, d_read))
                d_updated = d_h.baddbmm_(d_qkv_of[t], s.comm_qkv)
            if cell.cell == "gru":
                for factor in factors:
                    factor[t].mul_(d_updated.unsqueeze(2))
            else:
                d_c = torch.addcmul(d_c, d_updated, to_c_of[t])
                ifg_of[t].mul_(d_c.unsqueeze(2))
                o_of[t].mul_(d_updated)
                d_c = d_c.mul_(keep_c_of[t])
            d_h = torch.mul(d_updated, keep_h_of[t]).baddbmm_(d_rec_of[t], s.weight_hh)
            d_h = read.backward(t, d_inp_of[t], d_h)
            if resets[t]:
                alive = s.keep[t].view(1, B, 1) != 0
                d_h, d_c = torch.where(alive, d_h, 0), torch.where(alive, d_c, 0)

        rows = None if cell.num_active == K else [active.flatten().nonzero().squeeze(1) for active in s.active]
        d_keys, d_values = read.after_backward(d_inp, h_prev, rows, gradients)
        add_weight_gradient(gradients, "weight_hh", d_rec, h_prev, rows)
        for name, d in (("bias_ih", d_inp), ("bias_hh", d_rec)):
            add(gradients, name, d.sum((1, 2)))
        if cell.communication:
            add_weight_gradient(gradients, "comm_qkv", d_qkv, updated)
            add_weight_gradient(gradients, "comm_out", d_message, s.received, rows)
        return d_keys, d_values, _join(d_h), _join(d_c)

    def record(self, cell: RIMCell, s: Tape, elements: int) -> tuple[Tensor, Tensor]:
        K, T, B, _ = s.active.shape
        active = s.active.squeeze(-1).permute(1, 2, 0)  # (T, B, K)
        if s.keys is None:
            attention = F.pad((active / elements).unsqueeze(-1).expand(-1, -1, -1, elements), (0, 1))
        elif is_one_element(cell, s):
            attention = torch.cat([1 - s.null, s.null], -1).permute(1, 2, 0, 3)
        else:
            attention = s.attention
            attention = attention.view(T, B, cell.input_heads, K, -1).mean(2)
        if not cell.communication:
            return attention, active.new_zeros(T, B, K, K)
        communication = s.p.unflatten(1, (B, cell.comm_heads)).mean(2).transpose(2, 3)
        return attention, communication * active.unsqueeze(-1)


def _lstm_derivatives(s: Tape, h_prev: Tensor, c_prev: Tensor) -> tuple[Tensor, ...]:
    """For all steps: of the gates, of the path h -> c; what h and c keep of their gradient; and h before communication.

    Where a RIM is not active the first two are zero, and its c and h are kept whole.
    """
    gates = s.gates.transpose(0, 1)
    i, f, g, o = gates.chunk(4, -1)
    d_gates = gates.new_empty(gates.shape)
    d_i, d_f, d_g, d_o = d_gates.chunk(4, -1)
    tanh_c, tanh_g = torch.tanh(s.cs[:, 1:]), torch.sub(g, 0.5).mul_(2)
    # sigmoid' = y (1 - y), tanh' = 1 - y^2
    torch.addcmul(i, i, i, value=-1, out=d_i).mul_(tanh_g).mul_(s.active)
    torch.addcmul(f, f, f, value=-1, out=d_f).mul_(c_prev).mul_(s.active)
    torch.addcmul(i, i, tanh_g.square_(), value=-1, out=d_g).mul_(s.active)
    torch.addcmul(o, o, o, value=-1, out=d_o).mul_(tanh_c).mul_(s.active)
    updated = torch.lerp(h_prev, torch.mul(o, tanh_c, out=tanh_g), s.active)
    to_c = torch.addcmul(o, o, tanh_c.square_(), value=-1).mul_(s.active)
    keep_c = torch.sub(f, 1).mul_(s.active).add_(1)
    return d_gates, to_c, 1 - s.active, keep_c, updated


def _gru_derivatives(s: Tape, h_prev: Tensor) -> tuple[Tensor, ...]:
    """As for the LSTM. The n gate multiplies what comes from the state by r, so the two sides differ there."""
    r, z, n = s.gates.transpose(0, 1).chunk(3, -1)
    d_n = (1 - z) * (1 - n * n) * s.active
    d_z = (h_prev - n) * z * (1 - z) * s.active
    d_r = d_n * s.state_n * r * (1 - r)
    d_inp, d_rec = torch.cat([d_r, d_z, d_n], -1), torch.cat([d_r, d_z, d_n * r], -1)
    updated = torch.lerp(h_prev, torch.lerp(n, h_prev, z), s.active)
    return d_rec, d_inp, torch.lerp(torch.ones_like(z), z, s.active), updated


def _resets(keep: Tensor | None, steps: int) -> list[bool]:
    """At which steps somebody's state is reset, so that the others do without the two products."""
    return [False] * steps if keep is None else (keep == 0).any(1).tolist()


def _by_head(x: Tensor, n: int) -> Tensor:
    """(..., K, B, n * i) -> (..., B * n, K, i), without a copy."""
    return x.view(*x.shape[:-2], x.shape[-2] * n, -1).transpose(-3, -2)


def _split(state: Tensor, K: int) -> Tensor:
    """(B, K * H) -> (K, B, H)"""
    return state.view(state.shape[0], K, -1).transpose(0, 1)


def _join(state: Tensor) -> Tensor:
    """(K, B, H) -> (B, K * H)"""
    return state.transpose(0, 1).flatten(1)
