"""A lower bound and the argument that proves it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """`value` seconds, and the argument that proves it in words."""

    value: float
    source: str
