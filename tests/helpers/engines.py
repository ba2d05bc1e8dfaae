"""Which engines a machine can test."""

import pytest
import torch

from rims_rl.core.rims.engines.c_struct import library

needs_c = pytest.mark.skipif(library(torch.float32) is None, reason="the loops in C cannot be had: no C compiler")
in_c_and_in_torch = pytest.mark.parametrize("loops", [pytest.param("c", marks=needs_c), "torch"])
in_every_engine = pytest.mark.parametrize("engine", [pytest.param("c", marks=needs_c), "torch", "readable"])
