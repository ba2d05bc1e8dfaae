import os
import signal
import tempfile

# Before torch is loaded: virtual machines may claim to have AMX and kill who uses it, see agents/policies/precision.py.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

from tests.helpers.disks import small_disk  # noqa: F401  a fixture

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # where the key is that signs runs: not the user's own
torch.set_num_threads(1)  # two test processes share two cores
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts tests in the background has it ignored
