"""The paper's equations, written out with loops over batch entries, RIMs, heads and elements. Slow, and easy to check.

Only single numbers, vectors and matrices of one batch entry appear here; nothing is shared with the code under test but
the names of its parameters.
"""

import math

import torch


def step(cell, elements, h, c, dropped=(), forced=()):
    """One step for one batch entry: elements (N, D); h, c: lists of K vectors. Also returns who was active.

    Dropped RIMs have a state of zero, are never active and are not listened to; forced ones are always active.
    """
    K = cell.num_rims
    h, c = ([torch.zeros_like(v[k]) if k in dropped else v[k] for k in range(K)] for v in (h, c))
    X = torch.cat([elements, torch.zeros(1, elements.shape[1], dtype=elements.dtype)])  # equation 1, null last
    reads, active = read_input(cell, X, h, dropped, forced)
    told, c_next = [], []
    for k in range(K):
        if k in active:
            h_k, c_k = (lstm if cell.cell == "lstm" else gru)(cell, k, reads[k], h[k], c[k])
        else:
            h_k, c_k = h[k], c[k]
        told.append(h_k)
        c_next.append(c_k)
    if not cell.communication:
        return told, c_next, active
    return [told[k] + hear(cell, k, told, dropped) if k in active else told[k] for k in range(K)], c_next, active


def read_input(cell, X, h, dropped, forced):
    """Equations 2 and 3."""
    K, N, heads = cell.num_rims, X.shape[0] - 1, cell.input_heads
    count = min(cell.num_active, K - len(dropped))
    out, sure = {k: math.inf for k in dropped}, {k: -math.inf for k in forced}
    values = X @ cell.input_value.T
    if not cell.input_attention:
        return [values[:N].mean(0)] * K, set(range(K)) - set(dropped)
    keys, d, v = X @ cell.input_key.T, cell.input_key_size, cell.input_value_size // heads
    attention = []  # attention[k][head]: N + 1 numbers
    for k in range(K):
        query = cell.input_query[k] @ h[k]
        attention.append([])
        for head in range(heads):
            part = slice(head * d, (head + 1) * d)
            logits = torch.stack([torch.dot(query[part], keys[j, part]) / math.sqrt(d) for j in range(N + 1)])
            attention[k].append(torch.softmax(logits, 0))
    mean = [(sum(attention[k]) / heads).tolist() for k in range(K)]
    keeps = [[True] * (N + 1) for _ in range(K)]
    if cell.position_competition:
        for j in range(N):
            winners = first([out.get(k, -mean[k][j]) for k in range(K)], count)
            for k in range(K):
                keeps[k][j] = k in winners
        costs = [-sum(mean[k][j] for j in range(N) if keeps[k][j]) for k in range(K)]
    else:
        costs = [mean[k][N] for k in range(K)]
    active = first([(out | sure).get(k, cost) for k, cost in enumerate(costs)], count)
    reads = []
    for k in range(K):
        parts = []
        for head in range(heads):
            part = slice(head * v, (head + 1) * v)
            parts.append(sum(attention[k][head][j] * values[j, part] for j in range(N + 1) if keeps[k][j]))
        reads.append(torch.cat(parts))
    return reads, active


def first(costs, count):
    """The ``count`` smallest; of equal ones those with the lowest index. Rounded: equal on paper is equal here."""
    costs = [round(cost, 13) if math.isfinite(cost) else cost for cost in costs]
    return set(sorted(range(len(costs)), key=lambda k: (costs[k], k))[:count])


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


def hear(cell, k, told, dropped):
    """What RIM k gets from communication."""
    K, e, v = cell.num_rims, cell.comm_key_size, cell.comm_value_size
    parts = []
    for head in range(cell.comm_heads):
        start = head * (2 * e + v)
        rows = slice(start, start + e), slice(start + e, start + 2 * e), slice(start + 2 * e, start + 2 * e + v)
        query = cell.comm_qkv[k][rows[0]] @ told[k]
        logits = [torch.dot(query, cell.comm_qkv[j][rows[1]] @ told[j]) / math.sqrt(e) for j in range(K)]
        costs = [math.inf if j in dropped else -logit.item() for j, logit in enumerate(logits)]
        listened = first(costs, min(cell.comm_top_k or K, K - len(dropped)))
        largest = max(logits[j].item() for j in listened)  # taken off, since the gradient of e^400 / e^400 is no number
        shares = {j: torch.exp(logits[j] - largest) for j in listened}
        total = sum(shares.values())
        parts.append(sum(shares[j] / total * (cell.comm_qkv[j][rows[2]] @ told[j]) for j in listened))
    return cell.comm_out[k] @ torch.cat(parts)


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
                    h[layer] = [torch.zeros_like(v) for v in h[layer]]
                    c[layer] = [torch.zeros_like(v) for v in c[layer]]
                h[layer], c[layer], active = step(cell, elements, h[layer], c[layer], dropped, forced)
                elements = torch.cat(h[layer]).unsqueeze(0)
            outputs[b].append(torch.cat(h[-1]))
            actives[b].append([k in active for k in range(rim.layers[-1].num_rims)])
        last_h.append(torch.stack([torch.cat(v) for v in h]))
        last_c.append(torch.stack([torch.cat(v) for v in c]))
    output = torch.stack([torch.stack(o) for o in outputs], 1)
    return output, (torch.stack(last_h, 1), torch.stack(last_c, 1)), torch.tensor(actives).transpose(0, 1)
