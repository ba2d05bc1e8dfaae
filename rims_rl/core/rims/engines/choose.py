"""Which engine runs a layer."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rims_rl.core.rims.cell import RIMCell
from rims_rl.core.rims.engines.c_loops import CLoops
from rims_rl.core.rims.engines.engine import Engine
from rims_rl.core.rims.engines.loops import PLAIN
from rims_rl.core.rims.engines.operators import COperator
from rims_rl.core.rims.engines.readable import Readable
from rims_rl.core.rims.engines.torch_loops import TorchLoops

ENGINES: dict[str, Engine] = {"c": CLoops(), "torch": TorchLoops(), "readable": Readable()}  # the fastest first
OPERATOR = COperator()


def check_engine(engine: str) -> None:
    """A ValueError if there is no such engine."""
    if engine != "auto" and engine not in ENGINES:
        raise ValueError(f"engine must be 'auto', {', '.join(map(repr, ENGINES))}, got {engine!r}")


def choose_engine(wanted: str, cell: RIMCell, x: Tensor, h: Tensor, c: Tensor) -> Engine:
    """The engine that is wanted, with ``"auto"`` the fastest, or the next one that can run ``cell`` over ``x``; a
    warning says why."""
    # An exported program is to run elsewhere: without our operator, unless that is wanted.
    if torch.compiler.is_compiling() and wanted in (("c",) if torch.compiler.is_exporting() else ("auto", "c")):
        return OPERATOR if OPERATOR.refusal(cell, x) is None else ENGINES["readable"]
    if wants_plain_operations((x, h, c)):
        return ENGINES["readable"]
    engine = fastest(cell, x) if wanted == "auto" else ENGINES[wanted]
    if wanted != "auto" and (reason := engine.refusal(cell, x)):
        later = list(ENGINES)[list(ENGINES).index(wanted) + 1 :]
        engine = next(ENGINES[name] for name in later if ENGINES[name].refusal(cell, x) is None)
        warnings.warn(f"engine={wanted!r} cannot run this layer, since {reason}; {engine.name} does", stacklevel=2)
    return engine


def fastest(cell: RIMCell, x: Tensor) -> Engine:
    """The first of all engines that can run ``cell`` over ``x``."""
    return next(engine for engine in ENGINES.values() if engine.refusal(cell, x) is None)


def wants_plain_operations(tensors: Sequence[Tensor]) -> bool:
    """Whether somebody traces, compiles, casts, batches or differentiates code in ways of its own. All tensors are on
    one device."""
    x, *_ = tensors
    return bool(
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
        or x.is_meta
        or torch.is_autocast_enabled(x.device.type)
        or not PLAIN.issuperset(map(type, tensors))
    )


def engine_of(module: nn.Module) -> str:
    """Which engine would train the RIMs in ``module`` on this machine: ``"C"``, ``"torch"``, ``"readable"``, or several
    of these. Without RIMs, ``"torch"``."""
    cells = [cell for cell in module.modules() if isinstance(cell, RIMCell)]
    engines = {fastest(cell, cell.input_value.new_empty(2, 1, 1, 1)).name for cell in cells}
    return " and ".join(sorted(engines)) or "torch"
