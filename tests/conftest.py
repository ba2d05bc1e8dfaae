import signal

import torch

from tests.helpers.disks import small_disk  # noqa: F401  a fixture

torch.set_num_threads(1)  # two test processes share two cores
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts tests in the background has it ignored
