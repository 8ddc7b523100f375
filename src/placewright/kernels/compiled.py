"""How kernels are compiled: as by numba's `njit`, without entries that nobody uses.

Beside a kernel numba compiles two ways into it, and for one of many arrays that takes about as
long as the kernel itself: one for C, which nobody calls, and one for Python, which kernels that
only kernels call do without. Those are the ones whose names begin with an underscore: called from
Python they would crash the interpreter.
"""

from __future__ import annotations

from typing import Any

import numba


def njit(**options):
    """The decorator; `options` as those of `numba.njit`."""
    compiling: Any = numba.njit  # its annotations know fewer options than it takes

    def decorate(function):
        entries = {"no_cfunc_wrapper": True, "no_cpython_wrapper": function.__name__[0] == "_"}
        return compiling(**entries, **options)(function)

    return decorate
