"""The loops in C read and write nothing but what is theirs: compiled and run with gcc's AddressSanitizer."""

import os
import shutil
import subprocess
import sys

import pytest

BUILD = "import torch; from rims_rl.core.rims.engines.c_struct import has_library; has_library(torch.float64)"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, whose AddressSanitizer it is")
def test_the_loops_touch_no_memory_but_their_own(tmp_path):
    found = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    env = os.environ | {"CC": "gcc -fsanitize=address -g", "XDG_CACHE_HOME": str(tmp_path)}
    watched = {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0"}
    # Built beforehand, since a watched process has a watched compiler. This one cannot load what it has built.
    subprocess.run([sys.executable, "-c", BUILD], env=env, stderr=subprocess.DEVNULL)
    tests = ["tests/core/rims/test_operators.py", "-k", "readable_engine", "-p", "no:cacheprovider"]
    run = subprocess.run([sys.executable, "-m", "pytest", *tests], env=env | watched, capture_output=True, text=True)
    assert run.returncode == 0 and "13 passed" in run.stdout, run.stdout[-2000:] + run.stderr[-2000:]
