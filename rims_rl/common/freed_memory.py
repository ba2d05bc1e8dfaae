"""Memory that is freed stays with the process, for the next tensor of its size.

Training frees and wants the same large tensors again in every minibatch. glibc gives such memory back to the system at
once, which has to clear every page of it before it may be used again: some percent of the time of training.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """In the whole process, which then keeps the most that it has had. Without glibc this does nothing."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another libc
        return
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)  # what is free at the end of the heap stays there
    mallopt(_MMAP_MAX, 0)  # large tensors are part of the heap, too
