"""Recurrent cores: RIMs first, then the baselines they are compared with."""

from rims_rl.core.baselines import GRU, LSTM, Feedforward
from rims_rl.core.cell import RIMCell, RIMStep
from rims_rl.core.registry import core_factory, make_core, register_core
from rims_rl.core.rim import RIM
from rims_rl.core.trace import Record, Trace

__all__ = [
    "GRU",
    "LSTM",
    "RIM",
    "Feedforward",
    "RIMCell",
    "RIMStep",
    "Record",
    "Trace",
    "core_factory",
    "make_core",
    "register_core",
]
