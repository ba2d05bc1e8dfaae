"""The equations of the family of RIMs (schemata, layers that hear the one above, a workspace), written out with loops
like :mod:`tests.helpers.paper_equations`, from which comes what they have in common with RIMs."""

import math

import torch

from tests.helpers import paper_equations as paper


def run(rim, x, state, episode_starts=None, dropped=(), forced=()):
    """As :func:`tests.helpers.paper_equations.run`, for each core of the family; then who was active, in all layers."""
    T, B = x.shape[:2]
    K, H = rim.layers[0].num_rims, rim.layers[0].rim_size
    outputs, last, actives = [], [], []
    for b in range(B):
        layers = [State(cell, state[0][i, b], state[1][i, b]) for i, cell in enumerate(rim.layers)]
        outputs.append([])
        actives.append([])
        for t in range(T):
            for one in layers:
                if episode_starts is not None and episode_starts[t, b]:
                    one.begin()
                one.drop(dropped)
            before = [torch.cat(one.h) for one in layers]
            below, active_now = x[t, b], []
            for i, one in enumerate(layers):
                elements = below
                if hasattr(rim, "top_down") and i + 1 < len(layers):  # the layer above, at the step before
                    elements = torch.cat([elements, (rim.top_down[i].weight @ before[i + 1]).unsqueeze(0)])
                active_now.append(one.step(elements, dropped, forced))
                below = torch.cat(one.h).unsqueeze(0)
            outputs[b].append(below[0])
            actives[b].append([[k in active for k in range(K)] for active in active_now])
        last.append([one.packed() for one in layers])
    assert outputs[0][0].shape == (K * H,)
    output = torch.stack([torch.stack(o) for o in outputs], 1)
    h, c = (torch.stack([torch.stack([pair[i] for pair in entry]) for entry in last], 1) for i in (0, 1))
    return output, (h, c), torch.tensor(actives).transpose(0, 1).movedim(2, 0)  # (L, T, B, K)


class State:
    """Of one layer and one batch entry."""

    def __init__(self, cell, h, c):
        self.cell, width = cell, cell.num_rims * cell.rim_size
        self.h, self.c = list(h[:width].split(cell.rim_size)), list(c[:width].split(cell.rim_size))
        self.beside_h, self.beside_c = h[width:], c[width:]
        slots = getattr(cell, "num_slots", 0)
        self.slots = list(self.beside_h.split(len(self.beside_h) // slots)) if slots else []

    def begin(self):
        cell = self.cell
        self.h, self.c = paper.start(cell, "start_h", self.h), paper.start(cell, "start_c", self.c)
        self.slots = [
            torch.tensor([float(i == m) for i in range(len(slot))]).to(slot) for m, slot in enumerate(self.slots)
        ]
        self.beside_c = torch.zeros_like(self.beside_c)

    def drop(self, dropped):
        self.h, self.c = (
            [torch.zeros_like(v) if k in dropped else v for k, v in enumerate(part)] for part in (self.h, self.c)
        )

    def packed(self):
        return torch.cat([*self.h, *self.slots]), torch.cat([*self.c, self.beside_c])

    def step(self, elements, dropped, forced):
        cell, K = self.cell, self.cell.num_rims
        X = torch.cat([elements, torch.zeros(1, elements.shape[1], dtype=elements.dtype)])
        reads, active, attention = paper.read_input(cell, X, self.h, dropped, forced)
        h, c, would_be = [], [], []
        for k in range(K):
            h_k, c_k = dynamics(cell, k, reads[k], self.h[k], self.c[k])
            h_k, c_k = (
                paper.take_over(cell, attention[k], old, new) for old, new in ((self.h[k], h_k), (self.c[k], c_k))
            )
            kept = self.h[k], self.c[k]
            if cell.asleep == "drift" and k not in dropped:
                kept = dynamics(cell, k, torch.zeros_like(reads[k]), self.h[k], self.c[k])
            h.append(h_k if k in active else kept[0])
            c.append(c_k if k in active else kept[1])
            would_be.append(h_k if k in active else h_k.detach())
        if self.slots:
            if active:
                self.slots = written(cell, h, sorted(active), self.slots)
            h = [h[k] + from_slots(cell, k, h[k], self.slots) if k in active else h[k] for k in range(K)]
        elif cell.communication:
            said = would_be if cell.hear == "updates" else h
            h = [h[k] + paper.message(cell, k, said, dropped) if k in active else h[k] for k in range(K)]
        self.h, self.c = h, c
        return active


def dynamics(cell, k, read, h, c):
    """The RIM's own cell or, with schemata, the one that it picks."""
    one = paper.lstm if cell.cell == "lstm" else paper.gru
    if not hasattr(cell, "num_schemas"):
        return one(cell, k, read, h, c)
    candidates = [one(cell, s, read, h, c) for s in range(cell.num_schemas)]
    query = cell.schema_query @ h
    logits = [
        torch.dot(query, cell.schema_key[s] @ candidate) / math.sqrt(cell.schema_key_size)
        for s, (candidate, _) in enumerate(candidates)
    ]
    attention = torch.softmax(torch.stack(logits), 0)
    (chosen,) = paper.first([-share for share in attention.tolist()], 1)
    h_new, c_new = candidates[chosen]
    for s, (h_s, c_s) in enumerate(candidates):  # adds zero, and the gradient
        through = attention[s] - attention[s].detach()
        h_new, c_new = h_new + through * h_s, c_new + through * c_s
    return h_new, c_new


def rows(cell, head):
    """Which rows of queries, keys and values belong to a head."""
    e, v = cell.comm_key_size, cell.comm_value_size
    begin = head * (2 * e + v)
    return slice(begin, begin + e), slice(begin + e, begin + 2 * e), slice(begin + 2 * e, begin + 2 * e + v)


def written(cell, h, active, slots):
    """The slots after the active RIMs have written."""
    mean = sum(torch.relu(cell.write_gate[k] @ h[k]) for k in active) / len(active)
    result = []
    for slot in slots:
        parts = []
        for head in range(cell.comm_heads):
            q, e, v = rows(cell, head)
            query = cell.slot_qkv[q] @ slot
            logits = [torch.dot(query, cell.comm_qkv[k][e] @ h[k]) / math.sqrt(cell.comm_key_size) for k in active]
            shares = torch.softmax(torch.stack(logits), 0)
            parts.append(sum(share * (cell.comm_qkv[k][v] @ h[k]) for share, k in zip(shares, active, strict=True)))
        gates = cell.slot_gates @ (mean + cell.slot_memory @ torch.tanh(slot)) + cell.slot_bias
        take, keep = torch.sigmoid(gates).split(len(slot))
        result.append(take * torch.tanh(torch.cat(parts)) + keep * slot)
    return result


def from_slots(cell, k, h, slots):
    """What RIM k adds to its state after it has read the slots."""
    parts = []
    for head in range(cell.comm_heads):
        q, e, v = rows(cell, head)
        query = cell.comm_qkv[k][q] @ h
        logits = [torch.dot(query, cell.slot_qkv[e] @ slot) / math.sqrt(cell.comm_key_size) for slot in slots]
        shares = torch.softmax(torch.stack(logits), 0)
        parts.append(sum(share * (cell.slot_qkv[v] @ slot) for share, slot in zip(shares, slots, strict=True)))
    received = torch.cat(parts)
    out = cell.comm_out[k] @ received
    return torch.sigmoid(cell.comm_gate[k] @ received) * torch.tanh(out) if cell.communication == "gated" else out
