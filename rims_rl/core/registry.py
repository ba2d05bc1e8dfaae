"""Cores by name: what ``core`` of a run and ``policy_kwargs=dict(core=...)`` choose from.

A factory makes a :class:`rims_rl.core.Core`: ``factory(input_size, hidden_size, num_layers=1, **options)``, where
``hidden_size`` says how many units are wanted; a memory beside them makes the state wider. Most are the core's class
itself; what a function makes is given vectors, never sets. If it has arguments ``num_rims`` and ``num_active`` it is
given those. The default of its ``num_layers`` is the core's own number of layers.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from rims_rl.common.errors import UserError
from rims_rl.common.own_code import import_path
from rims_rl.common.suggestions import did_you_mean
from rims_rl.core.core import Core
from rims_rl.core.memories.baselines import GRU, LSTM, RNN, Feedforward
from rims_rl.core.memories.dnc import DNC
from rims_rl.core.memories.entnet import EntNet
from rims_rl.core.memories.ntm import NTM
from rims_rl.core.memories.rmc import RMC
from rims_rl.core.memories.transformer import Transformer
from rims_rl.core.memories.wrapped import Wrapped
from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.layer import RIM
from rims_rl.core.rims.schemata import SchemaCell
from rims_rl.core.rims.top_down import TopDownRIM
from rims_rl.core.rims.workspace import WorkspaceCell

Factory = Callable[..., Core]
CONTRACT = (
    "must make a rims_rl.core.Core, which is called with x (T, B, input_size), a state (h, c) and episode_starts "
    "(T, B), and gives an output (T, B, output_size) and the new state, or make a torch.nn.LSTM, GRU or RNN; "
    "docs/how-to/your_own_core.md has an example"
)

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BLOCKS: dict[str, Any] = {"input_attention": False, "communication": False}
_RELEASED: dict[str, Any] = {
    "communication": "gated", "hear": "updates", "initialization": "released", "comm_key_size": 16,
    "comm_value_size": 16,
}  # fmt: skip

_FACTORIES: dict[str, Factory] = {
    "rims": RIM,  # the paper's
    # what we recommend: half of those who are not active go on and hear the others, and messages are bounded; they are
    # smaller, so that it has as many parameters as the paper's
    "rims-robust": partial(RIM, asleep="half-listen", communication="gated", comm_value_size=22),
    "rims-listen": partial(RIM, asleep="listen"),  # all of them do
    "rims-released": partial(RIM, **_RELEASED),  # the authors' code for supervised tasks
    "scoff": partial(RIM, cell_class=SchemaCell),  # dynamics that RIMs share
    "brims": TopDownRIM,  # layers that hear the one above
    "rims-workspace": partial(RIM, cell_class=WorkspaceCell),  # slots instead of hearing each other
    "block-lstm": partial(RIM, **_BLOCKS, cell="lstm"),  # RIMs without attention, to tell what it adds to blocks
    "block-gru": partial(RIM, **_BLOCKS, cell="gru"),
    "lstm": LSTM, "gru": GRU, "rnn": RNN, "none": Feedforward,
    "rmc": RMC, "ntm": NTM, "dnc": DNC, "entnet": EntNet, "transformer": Transformer,
}  # fmt: skip


def register_core(name: str, factory: Factory, **options: Any) -> None:
    """Make ``factory`` known as ``core=name``, always called with these options. Saved models need it registered again
    before they are loaded."""
    new = partial(factory, **options) if options else factory
    if _parts(_FACTORIES.get(name, new)) != _parts(new):
        raise ValueError(f"core {name!r} is registered already, as {_FACTORIES[name]}; choose another name")
    _FACTORIES[name] = new


def core_factory(core: str) -> Factory:
    """The factory registered as ``core``, or the one that the dotted path ``core`` leads to, with its options."""
    if core in _FACTORIES:
        return _FACTORIES[core]
    if not isinstance(core, str) or "." not in core:
        hint = did_you_mean(repr(core), map(repr, _FACTORIES), "or a dotted path to a factory")
        raise ValueError(f"core must be one of {', '.join(map(repr, _FACTORIES))}, got {core!r}; {hint}")
    try:
        factory: Factory = import_path(core, "core")
    except UserError as error:
        raise ValueError(str(error)) from error
    return factory


def is_imported(core: str) -> bool:
    """Whether ``core``, a dotted path, leads to a network's class, or to a function or a partial one, of a module that
    the user has imported, so that neither importing nor calling it is anybody else's idea."""
    module, _, name = core.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    made, _ = _parts(found) if found is not None else (None, {})
    if module.split(".")[0] in sys.stdlib_module_names:
        return False
    return inspect.isfunction(made) or (isinstance(made, type) and issubclass(made, nn.Module))


def takes_sets(core: str) -> bool:
    """Whether ``core`` reads sets of elements; others are given the elements side by side, as one vector."""
    made, _ = _parts(core_factory(core))
    return isinstance(made, type) and issubclass(made, Core) and made.takes_sets


def shares_options(one: str, other: str) -> bool:
    """Whether two cores are of one kind, so that what is said of one holds for the other. Nothing is imported."""
    if not (one in _FACTORIES and other in _FACTORIES):
        return False
    made = [_parts(_FACTORIES[core])[0] for core in (one, other)]
    return all(isinstance(each, type) and issubclass(each, RIM) for each in made)


def fixed_options(core: str) -> dict[str, Any]:
    """What the name of a core stands for, beside its class."""
    return _parts(_FACTORIES[core])[1]


def has_rims(core: str) -> bool:
    """Whether ``core`` is divided like RIMs."""
    return "num_rims" in inspect.signature(core_factory(core)).parameters


def own_layers(core: str) -> int:
    """How many layers ``core`` has if nobody says otherwise."""
    argument = inspect.signature(core_factory(core)).parameters.get("num_layers")
    return argument.default if argument and isinstance(argument.default, int) else 1


def make_core(
    core: str, input_size: int, hidden_size: int, num_rims: int, num_active: int, num_layers: int | None, **options: Any
) -> Core:
    """Build a core; ``num_rims`` and ``num_active`` reach only factories that have such arguments. Without
    ``num_layers`` it has as many as :func:`own_layers` says."""
    factory = core_factory(core)
    fixed = _parts(factory)[1]
    for name in fixed.keys() & options.keys():
        raise ValueError(
            f"core {core!r} stands for {name}={fixed[name]!r}, got {name}={options[name]!r}; leave it out, or choose "
            "another core"
        )
    if num_layers is None:
        num_layers = own_layers(core)
    arguments = inspect.signature(factory).parameters
    rims = {"num_rims": num_rims, "num_active": num_active}
    options |= {name: value for name, value in rims.items() if name in arguments}
    try:
        made = factory(input_size, hidden_size, num_layers=num_layers, **options)
    except Exception as error:  # whatever a user's code does
        if wrong := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
            known = f"its options are {', '.join(names)}" if (names := _option_names(factory)) else "it has none"
            name = wrong[1]
            if name not in options:
                raise ValueError(f"core {core!r} {CONTRACT}; what you name takes no {name}") from error
            raise ValueError(f"core {core!r} has no option {name!r} (value {options.get(name)!r}); {known}") from error
        if isinstance(error, TypeError) or "." in core:
            reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
            raise ValueError(f"core {core!r} cannot be made with the options {options}: {reason}") from error
        raise
    if "." in core:
        made = _as_core(made, core)
    elif not isinstance(made, Core):
        raise ValueError(f"core {core!r} {CONTRACT}, got {type(made).__name__}")
    return made


def _as_core(made: Any, core: str) -> Core:
    """What a user's factory made, tried for two steps: mistakes in it are better said before training than in it."""
    if isinstance(made, nn.RNNBase):
        made = Wrapped(made)
    if not isinstance(made, Core):
        raise ValueError(f"core {core!r} {CONTRACT}, got {type(made).__name__}")
    x = torch.zeros(2, 3, made.input_size)
    if x.is_meta:  # only the sizes of its weights are wanted
        return made
    shapes = [(2, 3, made.output_size), *[(made.num_layers, 3, made.hidden_size)] * 2]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            output, (h, c) = made(x, made.initial_state(3), torch.ones(2, 3))
        got = [tuple(tensor.shape) for tensor in (output, h, c)]
    except Exception as error:  # whatever a user's code does
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise ValueError(f"core {core!r} {CONTRACT}, and failed at x of shape {tuple(x.shape)}: {reason}") from error
    if got != shapes:
        raise ValueError(f"core {core!r} {CONTRACT}; it gave the shapes {got} instead of {shapes}")
    return made


def _option_names(factory: Factory) -> list[str]:
    """What a core's ``core_kwargs`` may be."""
    made, fixed = _parts(factory)
    called = [made]
    if isinstance(made, type) and issubclass(made, RIM):  # which passes on what it does not know, as its cells do
        cell = fixed.get("cell_class", RIMCell)
        called += [RIM, *(each for each in cell.__mro__ if issubclass(each, RIMCell))]
    names = [each for one in called for each in inspect.signature(one).parameters.values() if each.kind not in _REST]
    given = {"input_size", "hidden_size", "num_layers", "num_rims", "num_active", "batch_first", "device", "dtype"}
    return [name for name in dict.fromkeys(each.name for each in names) if name not in given | fixed.keys()]


def _parts(factory: Factory) -> tuple[Factory, dict[str, Any]]:
    """What is called, and the options that it is always called with."""
    return (factory.func, factory.keywords) if isinstance(factory, partial) else (factory, {})
