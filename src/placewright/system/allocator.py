"""The C library's allocator: freed memory stays with the process.

By default glibc gives large blocks back to the system as soon as they are freed, and takes them
anew for the next tensor, a page fault for every 4 KiB. On threads beside the main one it does so
from 128 KiB on: convolutions ran 1.5 times as long there, and two threads together 3.5 times.
Programs that compute tensors of the same sizes again and again have no use for that.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_TRIM = 2**31 - 1
_LARGEST_MMAP = 32 * 2**20  # glibc takes no more


@cache
def keep_freed_memory() -> bool:
    """Keep what is freed for the next tensor, from now on; whether the allocator could be told.

    Only glibc's can: elsewhere nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    told = [mallopt(_TRIM_THRESHOLD, _LARGEST_TRIM), mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP)]
    return all(told)
