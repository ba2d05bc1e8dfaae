"""Agents whose memory is a set of Recurrent Independent Mechanisms (RIMs).

Names are loaded when they are first used: ``import rims_rl`` alone imports neither torch nor Stable-Baselines3.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rims_rl.agents import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
    from rims_rl.common.errors import UserError
    from rims_rl.core import RIM, RIMCell, register_core
    from rims_rl.evaluation.evaluate import EvaluateOptions, EvaluationResult, evaluate
    from rims_rl.evaluation.evaluate_variants import VariantsOptions, VariantsResult, evaluate_variants
    from rims_rl.exporting.export import ExportOptions, ExportResult, export
    from rims_rl.training.train import ResumeOptions, TrainOptions, TrainResult, resume, train

__version__ = "0.2.0"

# Where each lazily loaded name lives. A new name goes here, into __all__ and, for type checkers, into the imports.
_HOMES = {
    "rims_rl.agents": ("CnnRimsPolicy", "MlpRimsPolicy", "MultiInputRimsPolicy"),
    "rims_rl.common.errors": ("UserError",),
    "rims_rl.core": ("RIM", "RIMCell", "register_core"),
    "rims_rl.evaluation.evaluate": ("EvaluateOptions", "EvaluationResult", "evaluate"),
    "rims_rl.evaluation.evaluate_variants": ("VariantsOptions", "VariantsResult", "evaluate_variants"),
    "rims_rl.exporting.export": ("ExportOptions", "ExportResult", "export"),
    "rims_rl.training.train": ("ResumeOptions", "TrainOptions", "TrainResult", "resume", "train"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CnnRimsPolicy",
    "MlpRimsPolicy",
    "MultiInputRimsPolicy",
    "UserError",
    "RIM",
    "RIMCell",
    "register_core",
    "EvaluateOptions",
    "EvaluationResult",
    "evaluate",
    "VariantsOptions",
    "VariantsResult",
    "evaluate_variants",
    "ExportOptions",
    "ExportResult",
    "export",
    "ResumeOptions",
    "TrainOptions",
    "TrainResult",
    "resume",
    "train",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
