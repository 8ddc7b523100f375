"""Freed memory stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, resource
from placewright.system.allocator import keep_freed_memory
told = {told} and keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def use(size):
    block = libc.malloc(size)
    libc.memset(block, 1, size)
    libc.free(block)
use(16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(*, told: bool) -> int:
    """Of using 16 MiB, freeing them and using them again, 20 times."""
    return int(subprocess.check_output([sys.executable, "-c", SCRIPT.format(told=told)]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator of glibc")
def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    assert page_faults(told=True) < 1000 < page_faults(told=False)
