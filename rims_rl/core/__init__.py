"""Recurrent cores: RIMs first, then the baselines they are compared with."""

from rims_rl.core.baselines import GRU, LSTM, Feedforward
from rims_rl.core.cell import RIMCell, RIMStep
from rims_rl.core.dnc import DNC
from rims_rl.core.entnet import EntNet
from rims_rl.core.ntm import NTM
from rims_rl.core.registry import core_factory, make_core, register_core
from rims_rl.core.rim import RIM, engine_of
from rims_rl.core.rmc import RMC
from rims_rl.core.trace import Record, Trace
from rims_rl.core.transformer import Transformer

__all__ = [
    "DNC",
    "EntNet",
    "GRU",
    "LSTM",
    "NTM",
    "RIM",
    "RMC",
    "Feedforward",
    "RIMCell",
    "RIMStep",
    "Record",
    "Trace",
    "Transformer",
    "core_factory",
    "engine_of",
    "make_core",
    "register_core",
]
