"""Compiled inner loops: functions of arrays and scalars, and the only place with ``@njit``.

Each kernel has a slow, obvious twin in ``tests/naive.py``. Kernels are compiled when first used
and kept on disk by numba; `compiled_before` tells whether that has happened on this machine.
"""

from __future__ import annotations

from pathlib import Path


def compiled_before() -> bool:
    """Whether the kernels of this version are on disk already, so that no one needs to wait."""
    from placewright.kernels.insertion import insertion_schedule

    stats = getattr(insertion_schedule, "stats", None)
    if stats is None:  # NUMBA_DISABLE_JIT: nothing is ever compiled
        return True
    source = Path(__file__).with_name("insertion.py")
    kept = Path(stats.cache_path).glob("insertion.insertion_schedule-*.nbi")
    return any(index.stat().st_mtime >= source.stat().st_mtime for index in kept)
