"""Seconds and bytes: the only units inside; text with a unit at the edges.

>>> parse_bytes("16 GiB"), parse_bandwidth("100 Gbit/s"), parse_seconds("5 us")
(17179869184.0, 12500000000.0, 5e-06)
>>> format_bytes(17179869184), format_seconds(0.00123)
('16.0 GiB', '1.230 ms')
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*"
_PREFIX = {
    "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}


def parse_bytes(text: str) -> float:
    """Bytes from ``"16 GiB"``, ``"12 GB"`` or ``"4096"``; ValueError otherwise."""
    match = re.fullmatch(_NUMBER + r"([kKMGT]i?)?B?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no amount of memory: write bytes, or a number with "
                         "MB, GB, MiB, GiB, …")  # fmt: skip
    return float(match[1]) * _PREFIX[match[2] or ""]


def parse_bandwidth(text: str) -> float:
    """Bytes per second from ``"32 GB/s"``, ``"100 Gbit/s"`` or ``"4e9"``; ValueError otherwise."""
    match = re.fullmatch(_NUMBER + r"(?:([kKMGT]i?)?(B|bit|b)/s)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no bandwidth: write bytes per second, or a number with "
                         "GB/s, GiB/s, Gbit/s, …")  # fmt: skip
    return float(match[1]) * _PREFIX[match[2] or ""] / (8.0 if match[3] in ("bit", "b") else 1.0)


def parse_seconds(text: str) -> float:
    """Seconds from ``"5 us"``, ``"1.5 ms"`` or ``"5e-6"``; ValueError otherwise.

    A number without a unit comes as text too: YAML 1.1 takes ``5e-6`` for a word.
    """
    match = re.fullmatch(_NUMBER + r"(s|ms|us|µs|ns)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no time: write seconds, or a number with s, ms, us, ns")
    return float(match[1]) / _PER_SECOND[match[2] or "s"]


def format_bytes(amount: float) -> str:
    if math.isinf(amount):
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def format_seconds(seconds: float) -> str:
    if math.isinf(seconds) or math.isnan(seconds):
        return str(seconds)
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3f} {unit}"
    return f"{seconds * 1e9:.1f} ns" if seconds else "0 s"


def format_count(number: float) -> str:
    """Short decimal count: ``format_count(12.9e9) == "12.9 G"``."""
    for scale, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number:.0f}"


def printable(text: str, keep: str = "") -> str:
    """`text` with escapes for what would break a line or command a terminal, but for `keep`.

    Names come from files and arguments, which may hold anything.

    >>> printable("a\\x1b[31m")
    'a\\\\x1b[31m'
    """
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def listed(names: Sequence[str], shown: int = 3) -> str:
    """Names in a sentence; of more than `shown` the first, and how many there are more.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"])
    ('a, b and c', 'a, b and 2 more')
    """
    if len(names) > shown:
        names = [*names[: shown - 1], f"{len(names) - shown + 1} more"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
