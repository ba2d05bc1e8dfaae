"""Which options a layer of RIMs may have, and which of them contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rims_rl.core.checks import require

if TYPE_CHECKING:
    from rims_rl.core.rims.cell import RIMCell

GATES = {"lstm": 4, "gru": 3}  # of each kind of cell
CHOICES: dict[str, tuple[Any, ...]] = {  # of options; the paper's first
    "communication": (True, "gated", False),
    "start": ("zero", "learned"),
    "initialization": ("paper", "released"),
    "hear": ("states", "updates"),
    "asleep": ("keep", "drift", "listen", "half-listen"),
    "activation": ("exactly", "at_most"),
    "selection": ("hard", "straight-through", "soft"),
    "competition": ("null", "rims"),
}
COMPETING = {  # what has a meaning only where RIMs compete, and its default
    "position_competition": False,
    "activation": "exactly",
    "balance": 0.0,
    "selection": "hard",
    "competition": "null",
}
BY_NULL = {"position_competition": False, "own_elements": False, "activation": "exactly"}  # only with a null element


def check_options(cell: RIMCell) -> None:
    """A ValueError that names the first of a cell's options that is wrong, or contradicts another."""
    _check_sizes(cell)
    _check_numbers(cell)
    for name, choices in CHOICES.items():
        known = " or ".join(map(repr, choices))
        require(getattr(cell, name) in choices, f"{name} must be {known}, got {getattr(cell, name)!r}")
    _check_together(cell)


def _check_sizes(cell: RIMCell) -> None:
    names = ("input_size", "hidden_size", "num_rims", "input_heads", "input_key_size")
    for name in (*names, "comm_heads", "comm_key_size", "comm_value_size"):
        require(getattr(cell, name) >= 1, f"{name} must be at least 1, got {getattr(cell, name)}")
    hidden_size, num_rims = cell.hidden_size, cell.num_rims
    require(
        hidden_size % num_rims == 0,
        f"hidden_size must be a multiple of num_rims={num_rims}, got {hidden_size}; "
        f"{max(1, hidden_size // num_rims) * num_rims} would do",
    )
    require(
        1 <= cell.num_active <= num_rims,
        f"num_active must be between 1 and num_rims={num_rims}, got {cell.num_active}",
    )
    require(cell.cell in GATES, f'cell must be "lstm" or "gru", got {cell.cell!r}')
    reads, heads = cell.input_value_size, cell.input_heads
    require(
        reads >= 1 and reads % heads == 0,
        f"input_value_size must be a positive multiple of input_heads={heads}, got {reads}",
    )
    top = cell.comm_top_k
    require(
        top is None or 1 <= top <= num_rims, f"comm_top_k must be None or between 1 and num_rims={num_rims}, got {top}"
    )


def _check_numbers(cell: RIMCell) -> None:
    for name in ("input_dropout", "comm_dropout", "balance"):
        rate = getattr(cell, name)
        require(0.0 <= rate < 1.0, f"{name} must be at least 0 and below 1, got {rate}")
    require(0.0 < cell.null_bound <= 1.0, f"null_bound must be above 0 and at most 1, got {cell.null_bound}")


def _check_together(cell: RIMCell) -> None:
    values: dict[str, Any] = vars(cell)
    require(
        cell.input_attention or not cell.own_elements,
        "own_elements must be False without input_attention, got True: all RIMs read the same",
    )
    for name, default in COMPETING.items():
        require(
            cell.input_attention or values[name] == default,
            f"{name} must be {default!r} without input_attention, got {values[name]!r}: nobody competes",
        )
    for name, default in BY_NULL.items():
        require(
            cell.competition == "null" or values[name] == default,
            f"{name} must be {default!r} with competition='rims', got {values[name]!r}: nobody attends to null",
        )
    require(
        bool(cell.communication) or cell.hear == "states",
        "hear='updates' needs communication, got communication=False: nobody hears anything",
    )
    require(
        bool(cell.communication) or cell.asleep in ("keep", "drift"),
        f"asleep={cell.asleep!r} needs communication, got communication=False: 'drift' would do",
    )
    require(
        cell.asleep == "keep" or cell.hear == "states",
        f"hear must be 'states' with asleep={cell.asleep!r}, got 'updates': RIMs that are asleep have a new state",
    )
