"""Tensors that are freed and wanted again do not cost new pages."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys, torch
from rims_rl.common.freed_memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def use():
    for _ in range(20):
        torch.ones(48 * 2**20 // 4)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is about glibc")
def test_large_tensors_that_are_freed_come_back_without_new_pages():
    pages = {
        how: int(subprocess.run([sys.executable, "-c", CODE, how], check=True, capture_output=True, text=True).stdout)
        for how in ("keep", "give back")
    }
    assert pages["keep"] < 100 < pages["give back"]
