"""How alive RIMs are: numbers made of who was active when, which :meth:`rims_rl.RIM.trace` records."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor


def measures(active: Tensor, input_attention: Tensor, communication: Tensor) -> dict[str, float]:
    """All that a trace tells of RIMs together, see docs/how-to/inspect.md."""
    return {
        "mean_active": usage(active).sum().item(),
        "collapse": collapse(active),
        "worst_usage": worst_usage(active),
        "switching_rate": switching(active),
        "attention_entropy": entropy(input_attention),
        "communication_entropy": entropy(communication[active]),
    }


def usage(active: Tensor) -> Tensor:
    """How often each RIM is active, `(..., K)` -> `(K,)`."""
    return active.flatten(0, -2).double().mean(0)


def collapse(active: Tensor) -> float:
    """How far the work is from being shared equally: 0 if all RIMs do as much, 1 if one does everything.

    With p_k the share of RIM k in all updates, K / (K - 1) * sum_k max(1/K - p_k, 0) (Mittal et al., "Is a modular
    architecture enough?", 2022, arXiv:2206.02713).
    """
    p = _shares(active)
    count = len(p)
    return 0.0 if count == 1 else (count / (count - 1) * (1 / count - p).clamp_min(0).sum()).item()


def worst_usage(active: Tensor) -> float:
    """How idle the idlest RIM is: 0 if it does as much as the others, 1 if it never acts; 1 - K min p_k (as above)."""
    p = _shares(active)
    return (1 - len(p) * p.min()).item()


def switching(active: Tensor) -> float:
    """How often a RIM falls asleep or wakes up from one step to the next, of all steps and RIMs, `(T, ..., K)`."""
    return active.double().diff(dim=0).abs().mean().item() if len(active) > 1 else 0.0


def entropy(shares: Tensor) -> float:
    """How widely attention is spread, in nats, on average over all rows, `(..., N)`; 0 if there are none."""
    rows = -torch.special.xlogy(shares, shares).sum(-1)
    return rows.mean().item() if rows.numel() else 0.0


def alignment(active: Tensor, rules: Tensor) -> float:
    """Whether each rule has a RIM of its own: 1 if that RIM acts when, and only when, the rule is in force; 0 if
    activity tells nothing.

    ``active`` is `(..., K)`, ``rules`` (...) the number of the rule that is in force. Rules are given to RIMs one to
    one, as far as these reach, such that the mean over rules of (how often its RIM is active under it, less how often
    under the others) is largest; a rule without a RIM counts 0.
    """
    active, rules = active.flatten(0, -2).double(), rules.flatten()
    there = rules.unique()
    if len(there) < 2:
        return 0.0
    gains = torch.stack([active[rules == rule].mean(0) - active[rules != rule].mean(0) for rule in there])
    chosen = linear_sum_assignment(-gains.numpy())
    return float(gains.numpy()[chosen].sum() / len(there))


def _shares(active: Tensor) -> Tensor:
    """Of all updates, `(K,)`; equal if there were none."""
    used = usage(active)
    total = used.sum()
    return used / total if total > 0 else torch.full_like(used, 1 / len(used))
