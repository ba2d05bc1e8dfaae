"""In which precision an encoder computes, and whether this machine can."""

from __future__ import annotations

import functools
import subprocess
import sys

import torch

PRECISIONS = ("float32", "bf16")
_PRODUCT = "import torch; x = torch.zeros(512, 512, dtype=torch.bfloat16); torch.nn.functional.linear(x[:8], x)"


def check_precision(precision: str) -> None:
    """A ValueError if there is no such precision, or this machine cannot compute in it."""
    if precision not in PRECISIONS:
        raise ValueError(f'precision must be "float32" or "bf16", got {precision!r}')
    if precision == "bf16" and not torch.cuda.is_available() and not bf16_works():
        raise ValueError(
            'precision="bf16" ends every program on this machine: its processor claims to have AMX, and refuses to use '
            'it. Start with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment, or take "float32"'
        )


@functools.cache
def bf16_works() -> bool:
    """Some virtual machines let programs believe that there is AMX, and kill them at its first instruction. So another
    program tries it, where there should be some."""
    if not torch.cpu._is_amx_tile_supported():
        return True
    return subprocess.run([sys.executable, "-c", _PRODUCT], stderr=subprocess.DEVNULL).returncode == 0
