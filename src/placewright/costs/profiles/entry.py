"""What is measured, and what came out.

>>> key = ProfileKey("aten.relu.default(fp32[8])", "NVIDIA H200", "torch 2.13.0")
>>> key.op
'aten.relu.default'
>>> Measured(2e-6, 1e-6, 3e-6, 20, "context", measured_at="2026-07-01T14:00:00+02:00").measured_at
'2026-07-01T12:00:00Z'
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from placewright.errors import ProfileError

Method = Literal["context", "isolated"]
Way = Literal["auto", "context", "isolated"]
"""How to measure a program: a method, or the one that there is memory for."""
Missing = Literal["refuse", "predict"]
"""What becomes of a call that fails: nothing is measured, or its time is the cost model's."""
_METHODS = get_args(Method)
_IN_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
MAX_SAMPLES = 2**53


@dataclass(frozen=True)
class ProfileKey:
    """An op with its arguments, on a device, in a version of a library.

    `signature` is the canonical text of op, arguments, shapes, dtypes and strides, such as
    ``aten.linear.default(fp32[1,128,768], fp32[768,768], fp32[768])``.
    """

    signature: str
    device: str
    library: str

    def __post_init__(self) -> None:
        for text in (self.signature, self.device, self.library):
            try:
                text.encode()
            except UnicodeEncodeError:  # can be neither kept nor printed
                raise ProfileError(
                    f"a profile's key holds half a character: {text!a}; write whole characters"
                ) from None

    @property
    def op(self) -> str:
        """The op's name alone."""
        return op_name(self.signature)


@dataclass(frozen=True)
class Measured:
    """The median of some samples and their 5th and 95th percentile, in seconds.

    `memory` is the bytes beyond inputs and outputs while it runs, 0 where that is not known.
    `measured_at` is UTC, ISO 8601 to the second; the store fills it in where it is empty.
    """

    seconds: float
    low: float
    high: float
    samples: int
    method: Method
    memory: float = 0.0
    measured_at: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.seconds <= self.high < math.inf:
            raise ProfileError(
                f"a profile has a median of {self.seconds} s between {self.low} and {self.high} s; "
                "give finite times in rising order, none below 0"
            )
        if not 1 <= self.samples <= MAX_SAMPLES:
            raise ProfileError(f"a profile has {self.samples} samples; give a count of at least 1")
        if not 0 <= self.memory < math.inf:
            raise ProfileError(f"a profile has {self.memory} bytes of memory; give 0 or more")
        if self.method not in _METHODS:
            raise ProfileError(
                f"a profile was measured by '{self.method}'; there are {', '.join(_METHODS)}"
            )
        if self.measured_at:
            moment = parse_moment(self.measured_at)
            if not _IN_UTC.fullmatch(self.measured_at):
                object.__setattr__(self, "measured_at", moment_text(moment))


@dataclass(frozen=True)
class ProfileGroup:
    """What there is of one device and library: how many `ops`, `first` and `last` measured."""

    device: str
    library: str
    ops: int
    first: str
    last: str


def op_name(signature: str) -> str:
    return signature.partition("(")[0]


def moment_text(moment: datetime) -> str:
    """A moment to the second, in UTC, so that the order of texts is that of moments."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def parse_moment(text: str) -> datetime:
    """The moment of an ISO 8601 text with a zone; ProfileError otherwise."""
    try:
        moment = datetime.fromisoformat(text)
        moment.astimezone(UTC)  # overflows at the ends of the calendar
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ProfileError(
            f"a profile was measured at '{text}'; write the time as 2026-07-01T12:00:00Z"
        )
    return moment
