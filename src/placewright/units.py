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
    "": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15,
    "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40,
}  # fmt: skip
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "μs": 1e6, "ns": 1e9}  # both µ


def parse_bytes(text: str) -> float:
    """Bytes from ``"16 GiB"``, ``"12 gb"`` or ``"4096"``; ValueError otherwise."""
    match = re.fullmatch(_NUMBER + r"([kmgt]i?)?b?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is no amount of memory: write bytes, or a number with "
                         "MB, GB, MiB, GiB, …")  # fmt: skip
    return float(match[1]) * _prefix(match[2])


def parse_bandwidth(text: str) -> float:
    """Bytes per second from ``"32 GB/s"``, ``"100 Gbit/s"`` or ``"4e9"``; ValueError otherwise.

    A `b` is a bit and a `B` a byte, so ``"1 gb/s"``, where small letters may have been meant for
    either, is refused; ``bit/s`` and ``bps`` are bits however they are written.
    """
    match = re.fullmatch(_NUMBER + r"(?:([kKMGT]i?)?(B|b)/s)?\s*", text) or re.fullmatch(
        _NUMBER + r"([kKmMgGtT]i?)?([bB]its?/s|bps)\s*", text
    )
    if not match:
        raise ValueError(f"{text!r} is no bandwidth: write bytes per second, or a number with "
                         "GB/s, GiB/s, Gbit/s, …")  # fmt: skip
    return float(match[1]) * _prefix(match[2]) / (1.0 if match[3] in (None, "B") else 8.0)


def parse_flops(text: str) -> float:
    """Operations per second from ``"330 TFLOPS"``, ``"71 TFLOP/s"``, ``"284 TOPS"`` or ``"7e13"``;
    ValueError otherwise."""
    match = re.fullmatch(_NUMBER + r"(?:([kmgtp])?(?:fl)?op(?:s|/s))?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is no number of operations per second: write FLOP/s, or a "
                         "number with GFLOPS, TFLOPS, PFLOPS, …")  # fmt: skip
    return float(match[1]) * _prefix(match[2])


def _prefix(text: str | None) -> float:
    return _PREFIX[(text or "").lower()]


def parse_seconds(text: str) -> float:
    """Seconds from ``"5 us"``, ``"1.5 ms"`` or ``"5e-6"``; ValueError otherwise.

    A number without a unit may come as text too, as from a command line.
    """
    match = re.fullmatch(_NUMBER + r"(s|ms|us|µs|μs|ns)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no time: write seconds, or a number with s, ms, us, ns")
    return float(match[1]) / _PER_SECOND[match[2] or "s"]


def parse_whole(text: str) -> int | None:
    """The number that plain digits stand for; None of other text, and of thousands of digits.

    >>> parse_whole("12"), parse_whole("-1"), parse_whole("9" * 5000)
    (12, None, None)
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    try:
        return int(text)
    except ValueError:  # more digits than Python reads
        return None


def format_bytes(amount: float) -> str:
    if math.isinf(amount):
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{_short(amount, 1)} TiB"


def format_seconds(seconds: float) -> str:
    if math.isinf(seconds) or math.isnan(seconds):
        return str(seconds)
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if round(abs(seconds) / scale, 6) >= 1:  # not 1000.000 of the next smaller unit
            return f"{_short(seconds / scale, 3)} {unit}"
    return f"{seconds * 1e9:.1f} ns" if seconds else "0 s"


def format_count(number: float) -> str:
    """Short decimal count: ``format_count(12.9e9) == "12.9 G"``."""
    for scale, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= scale:
            return f"{_short(number / scale, 1)} {unit}"
    return f"{number:.0f}"


def _short(number: float, places: int) -> str:
    """With so many decimal places; by powers of ten where all its digits would fill the line."""
    return f"{number:.{places}{'e' if abs(number) >= 1e6 else 'f'}}"


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
