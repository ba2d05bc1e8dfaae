"""Recurrent cores: RIMs first, then the baselines they are compared with."""

from rims_rl.core.core import Core, State
from rims_rl.core.memories.baselines import GRU, LSTM, RNN, Feedforward
from rims_rl.core.memories.dnc import DNC
from rims_rl.core.memories.entnet import EntNet
from rims_rl.core.memories.ntm import NTM
from rims_rl.core.memories.rmc import RMC
from rims_rl.core.memories.transformer import Transformer
from rims_rl.core.registry import core_factory, has_rims, make_core, own_layers, register_core, takes_sets
from rims_rl.core.rims.cell import RIMCell, RIMStep, per_rim
from rims_rl.core.rims.engines.choose import engine_of
from rims_rl.core.rims.layer import RIM, weights_at_rest
from rims_rl.core.rims.schemata import SchemaCell
from rims_rl.core.rims.top_down import TopDownRIM
from rims_rl.core.rims.trace import Record, Trace
from rims_rl.core.rims.workspace import WorkspaceCell

__all__ = [
    "DNC",
    "EntNet",
    "GRU",
    "LSTM",
    "NTM",
    "RIM",
    "RMC",
    "RNN",
    "Core",
    "Feedforward",
    "RIMCell",
    "RIMStep",
    "Record",
    "SchemaCell",
    "State",
    "TopDownRIM",
    "Trace",
    "Transformer",
    "WorkspaceCell",
    "core_factory",
    "engine_of",
    "has_rims",
    "make_core",
    "own_layers",
    "per_rim",
    "register_core",
    "takes_sets",
    "weights_at_rest",
]
