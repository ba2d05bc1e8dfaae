"""Cores by name: what ``--core`` and ``policy_kwargs=dict(core=...)`` choose from.

A core is a module with ``input_size``, ``output_size``, ``hidden_size`` (width of each of its two state tensors),
``num_layers`` and the call of :class:`rims_rl.RIM`. A factory makes one: ``factory(input_size, hidden_size,
num_layers=1, **options)``, where ``hidden_size`` says how many units are wanted; a memory beside them makes the state
wider. If it has the attribute ``takes_sets = True``, its cores take `(T, B, N, input_size)` too;
others get the elements of a set concatenated. If it has arguments ``num_rims`` and ``num_active`` it is given those.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

from rims_rl.core.memories.baselines import GRU, LSTM, Feedforward
from rims_rl.core.memories.dnc import DNC
from rims_rl.core.memories.entnet import EntNet
from rims_rl.core.memories.ntm import NTM
from rims_rl.core.memories.rmc import RMC
from rims_rl.core.memories.transformer import Transformer
from rims_rl.core.rims.layer import RIM

Factory = Callable[..., nn.Module]

_FACTORIES: dict[str, Factory] = {
    "rims": RIM, "lstm": LSTM, "gru": GRU, "none": Feedforward, "rmc": RMC, "ntm": NTM, "dnc": DNC, "entnet": EntNet,
    "transformer": Transformer,
}  # fmt: skip


def register_core(name: str, factory: Factory) -> None:
    """Make ``factory`` known as ``core=name``. Saved models need it registered again before they are loaded."""
    if _FACTORIES.get(name, factory) is not factory:
        raise ValueError(f"core {name!r} is registered already, as {_FACTORIES[name]}; choose another name")
    _FACTORIES[name] = factory


def core_factory(core: str) -> Factory:
    """The factory registered as ``core``, or the one that the dotted path ``core`` leads to."""
    if core in _FACTORIES:
        return _FACTORIES[core]
    module, _, attribute = core.rpartition(".") if isinstance(core, str) else ("", "", "")
    if not module:
        close = difflib.get_close_matches(str(core), _FACTORIES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "or a dotted path to a factory"
        raise ValueError(f"core must be one of {', '.join(map(repr, _FACTORIES))}, got {core!r}; {hint}")
    try:
        factory: Factory = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"core {core!r} cannot be imported: {error}") from error
    return factory


def make_core(
    core: str, input_size: int, hidden_size: int, num_rims: int, num_active: int, num_layers: int, **options: Any
) -> nn.Module:
    """Build a core; ``num_rims`` and ``num_active`` reach only factories that have such arguments."""
    factory = core_factory(core)
    arguments = inspect.signature(factory).parameters
    rims = {"num_rims": num_rims, "num_active": num_active}
    options |= {name: value for name, value in rims.items() if name in arguments}
    try:
        return factory(input_size, hidden_size, num_layers=num_layers, **options)
    except TypeError as error:
        raise ValueError(f"core {core!r} cannot be made with the options {options}: {error}") from error
