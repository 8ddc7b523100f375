"""Code named by text, ``module:name`` inside `placewright`: tables name it, who asks imports it."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any


@cache
def referred(reference: str) -> Any:
    """What a reference such as ``simulate.latency:time_placement`` names.

    >>> referred("units:listed")(["a", "b"])
    'a and b'
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"placewright.{module}"), name)
