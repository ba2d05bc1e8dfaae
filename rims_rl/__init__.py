"""Agents whose memory is a set of Recurrent Independent Mechanisms (RIMs).

Names are loaded when they are first used: ``import rims_rl`` alone imports neither torch nor Stable-Baselines3.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rims_rl.agents import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
    from rims_rl.core import RIM, RIMCell, register_core

__version__ = "0.1.0"

__all__ = [
    "CnnRimsPolicy",
    "MlpRimsPolicy",
    "MultiInputRimsPolicy",
    "RIM",
    "RIMCell",
    "register_core",
    "__version__",
]

# Where each lazily loaded name lives. A new name goes here, into __all__ and, for type checkers, into the imports.
_HOMES = {
    "CnnRimsPolicy": "rims_rl.agents",
    "MlpRimsPolicy": "rims_rl.agents",
    "MultiInputRimsPolicy": "rims_rl.agents",
    "RIM": "rims_rl.core",
    "RIMCell": "rims_rl.core",
    "register_core": "rims_rl.core",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
