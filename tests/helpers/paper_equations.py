"""The paper's equations, and those of the cell's options, written out with loops over batch entries, RIMs, heads and
elements. Slow, and easy to check.

Only single numbers, vectors and matrices of one batch entry appear here; nothing is shared with the code under test but
the names of its parameters.
"""

import math

import torch
from hypothesis import assume, currently_in_test_context


def step(cell, elements, h, c, dropped=(), forced=()):
    """One step for one batch entry: elements (N, D); h, c: lists of K vectors. Also returns who was active.

    Dropped RIMs have a state of zero, are never active and are not listened to; forced ones are always active.
    """
    K = cell.num_rims
    h, c = ([torch.zeros_like(v[k]) if k in dropped else v[k] for k in range(K)] for v in (h, c))
    X = torch.cat([elements, torch.zeros(1, elements.shape[1], dtype=elements.dtype)])  # equation 1, null last
    reads, active, attention = read_input(cell, X, h, dropped, forced)
    stores = range({"keep": K, "half-listen": K // 2}.get(cell.asleep, 0))
    h_next, c_next, would_be = [], [], []
    for k in range(K):
        h_k, c_k = (lstm if cell.cell == "lstm" else gru)(cell, k, reads[k], h[k], c[k])
        h_k, c_k = (take_over(cell, attention[k], old, new) for old, new in ((h[k], h_k), (c[k], c_k)))
        kept = h[k], c[k]
        if k not in dropped and k not in stores:
            kept = (lstm if cell.cell == "lstm" else gru)(cell, k, torch.zeros_like(reads[k]), h[k], c[k])
        h_next.append(h_k if k in active else kept[0])
        c_next.append(c_k if k in active else kept[1])
        would_be.append(h_k if k in active else h_k.detach())
    if not cell.communication:
        return h_next, c_next, active
    said = would_be if cell.hear == "updates" else h_next
    hearing = active | (set(range(K)) - set(dropped) - set(stores) if "listen" in cell.asleep else set())
    return (
        [h_next[k] + message(cell, k, said, dropped) if k in hearing else h_next[k] for k in range(K)],
        c_next,
        active,
    )


def take_over(cell, attention, old, new):
    """``attention`` to the input, all elements together."""
    if cell.selection == "hard":
        return new
    if cell.selection == "soft":
        return old + attention * (new - old)
    return old + (1 + attention - attention.detach()) * (new - old)


def read_input(cell, X, h, dropped, forced):
    """Equations 2 and 3: what each RIM reads, who is active, and how much each attends to the input."""
    K, N, heads = cell.num_rims, X.shape[0] - 1, cell.input_heads
    count = min(cell.num_active, K - len(dropped))
    out, sure = {k: math.inf for k in dropped}, {k: -math.inf for k in forced}
    values = X @ cell.input_value.T
    if not cell.input_attention:
        return [values[:N].mean(0)] * K, set(range(K)) - set(dropped), [None] * K
    keys, d, v = X @ cell.input_key.T, cell.input_key_size, cell.input_value_size // heads
    attention = []  # attention[k][head]: N + 1 numbers
    for k in range(K):
        query = cell.input_query[k] @ h[k]
        attention.append([])
        for head in range(heads):
            part = slice(head * d, (head + 1) * d)
            logits = torch.stack([torch.dot(query[part], keys[j, part]) / math.sqrt(d) for j in range(N + 1)])
            attention[k].append(logits if cell.competition == "rims" else torch.softmax(logits, 0))
    if cell.competition == "rims":
        attention = among_rims(attention, N, heads, count, dropped)
    mean = [(sum(attention[k]) / heads).tolist() for k in range(K)]
    keeps = [[True] * (N + 1) for _ in range(K)]
    if cell.position_competition:
        for j in range(N):
            winners = first([out.get(k, -mean[k][j]) for k in range(K)], count)
            for k in range(K):
                keeps[k][j] = k in winners
    if cell.position_competition or cell.competition == "rims":
        costs = [-sum(mean[k][j] for j in range(N) if keeps[k][j]) for k in range(K)]
    else:
        costs = [mean[k][N] for k in range(K)]
    if cell.balance:
        costs = [cost - cell.balance_bias[k].item() for k, cost in enumerate(costs)]
    active = first([(out | sure).get(k, cost) for k, cost in enumerate(costs)], count)
    if cell.activation == "at_most":
        active = {k for k in active if k in forced or mean[k][N] <= cell.null_bound}
    reads = []
    for k in range(K):
        parts = []
        for head in range(heads):
            part = slice(head * v, (head + 1) * v)
            parts.append(sum(attention[k][head][j] * values[j, part] for j in range(N + 1) if keeps[k][j]))
        reads.append(torch.cat(parts))
    nothing = torch.zeros((), dtype=X.dtype)
    to_input = [
        sum((attention[k][head][j] for head in range(heads) for j in range(N) if keeps[k][j]), nothing) / heads
        for k in range(K)
    ]
    return reads, active, to_input


def among_rims(logits, N, heads, count, dropped):
    """The released Atari code: at each element a softmax over RIMs, less the value of the best who stays out."""
    K = len(logits)
    here = [k for k in range(K) if k not in dropped]
    attention = [[[torch.zeros((), dtype=torch.float64)] * (N + 1) for _ in range(heads)] for _ in range(K)]
    for head in range(heads):
        for j in range(N):
            shares = torch.softmax(torch.stack([logits[k][head][j] for k in here]), 0)
            if len(here) > count + 1:
                best_out = shares[sorted(range(len(here)), key=lambda i: -shares[i].item())[count]]
                shares = torch.stack([torch.clamp(share - best_out - 1e-7, min=0) for share in shares])
                shares = shares / (sum(shares) + 1e-7)
            for i, k in enumerate(here):
                attention[k][head][j] = shares[i]
    return [[torch.stack(row) for row in rows] for rows in attention]


def first(costs, count):
    """The ``count`` smallest; of equal ones those with the lowest index.

    Where rounding decides who is the last of them, nothing can be said: hypothesis tries another example. That happens
    where attention is all or nothing.
    """
    order = sorted(range(len(costs)), key=lambda k: (costs[k], k))
    if count < len(costs) and currently_in_test_context():
        last, next_ = costs[order[count - 1]], costs[order[count]]
        assume(last == next_ or next_ - last > 1e-12)
    return set(order[:count])


def lstm(cell, k, x, h, c):
    gates = cell.weight_ih[k] @ x + cell.bias_ih[k] + cell.weight_hh[k] @ h + cell.bias_hh[k]
    i, f, g, o = gates.split(cell.rim_size)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru(cell, k, x, h, c):
    r_x, z_x, n_x = (cell.weight_ih[k] @ x + cell.bias_ih[k]).split(cell.rim_size)
    r_h, z_h, n_h = (cell.weight_hh[k] @ h + cell.bias_hh[k]).split(cell.rim_size)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    return (1 - z) * n + z * h, c


def message(cell, k, said, dropped):
    """What RIM k gets from communication."""
    K, e, v = cell.num_rims, cell.comm_key_size, cell.comm_value_size
    parts = []
    for head in range(cell.comm_heads):
        start = head * (2 * e + v)
        rows = slice(start, start + e), slice(start + e, start + 2 * e), slice(start + 2 * e, start + 2 * e + v)
        query = cell.comm_qkv[k][rows[0]] @ said[k]
        logits = [torch.dot(query, cell.comm_qkv[j][rows[1]] @ said[j]) / math.sqrt(e) for j in range(K)]
        costs = [math.inf if j in dropped else -logit.item() for j, logit in enumerate(logits)]
        listened = first(costs, min(cell.comm_top_k or K, K - len(dropped)))
        largest = max(logits[j].item() for j in listened)  # taken off, since the gradient of e^400 / e^400 is no number
        shares = {j: torch.exp(logits[j] - largest) for j in listened}
        total = sum(shares.values())
        parts.append(sum(shares[j] / total * (cell.comm_qkv[j][rows[2]] @ said[j]) for j in listened))
    out = cell.comm_out[k] @ torch.cat(parts)
    if cell.communication == "gated":
        return torch.sigmoid(cell.comm_gate[k] @ torch.cat(parts)) * torch.tanh(out)
    return out


def start(cell, name, state):
    """What each RIM begins with."""
    learned = cell.start == "learned" and not (name == "start_c" and cell.cell == "gru")
    return [getattr(cell, name)[k] if learned else torch.zeros_like(part) for k, part in enumerate(state)]


def run(rim, x, state, episode_starts=None, dropped=(), forced=()):
    """All layers over a sequence: x (T, B, N, D), state (L, B, hidden). As RIM; then who was active at last."""
    T, B = x.shape[:2]
    outputs, last_h, last_c, actives = [], [], [], []
    for b in range(B):
        h = [list(state[0][layer, b].split(cell.rim_size)) for layer, cell in enumerate(rim.layers)]
        c = [list(state[1][layer, b].split(cell.rim_size)) for layer, cell in enumerate(rim.layers)]
        outputs.append([])
        actives.append([])
        for t in range(T):
            elements = x[t, b]
            for layer, cell in enumerate(rim.layers):
                if episode_starts is not None and episode_starts[t, b]:
                    h[layer] = start(cell, "start_h", h[layer])
                    c[layer] = start(cell, "start_c", c[layer])
                h[layer], c[layer], active = step(cell, elements, h[layer], c[layer], dropped, forced)
                elements = torch.cat(h[layer]).unsqueeze(0)
            outputs[b].append(torch.cat(h[-1]))
            actives[b].append([k in active for k in range(rim.layers[-1].num_rims)])
        last_h.append(torch.stack([torch.cat(v) for v in h]))
        last_c.append(torch.stack([torch.cat(v) for v in c]))
    output = torch.stack([torch.stack(o) for o in outputs], 1)
    return output, (torch.stack(last_h, 1), torch.stack(last_c, 1)), torch.tensor(actives).transpose(0, 1)
