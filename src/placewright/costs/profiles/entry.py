"""What is measured, and what came out.

>>> key = ProfileKey("aten.relu.default(fp32[8])", "NVIDIA H200", "torch 2.13.0")
>>> key.op
'aten.relu.default'
>>> Measured(2e-6, 1e-6, 3e-6, 20, "context", measured_at="2026-07-01T14:00:00+02:00").measured_at
'2026-07-01T12:00:00Z'
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self, get_args

from placewright.cluster import Device
from placewright.costs.catalog import is_cpu
from placewright.errors import ProfileError
from placewright.graph import DTYPES

Method = Literal["context", "isolated", "regressed", "run"]
"""How a time was found: the program run whole, the call alone, computed from those of smaller
batches, or a plan run."""
Way = Literal["auto", "context", "isolated"]
"""How to measure a program: a method, or the one that there is memory for."""
Missing = Literal["refuse", "predict"]
"""What becomes of a call that fails: nothing is measured, or its time is the cost model's."""
_METHODS = get_args(Method)
_IN_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
MAX_SAMPLES = 2**53
NORMAL_95 = 1.645  # standard deviations from the median of a normal to its 95th percentile


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
    `measured_at` is UTC, ISO 8601 to the second; the store fills it in where it is empty. What
    the op has to do, of which prediction makes times for other ops and devices: FLOPs, bytes read
    and written, and the `dtype` it computes in (empty: that is not known). `bytes_before` are those
    that calls read and wrote since the last of the same op: the more, the less is left of it in the
    caches.
    """

    seconds: float
    low: float
    high: float
    samples: int
    method: Method
    memory: float = 0.0
    measured_at: str = ""
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    dtype: str = ""
    bytes_before: float = 0.0

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
        for name in ("flops", "bytes_read", "bytes_written", "bytes_before"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ProfileError(f"a profile has {getattr(self, name)} {name}; give 0 or more")
        if self.dtype and self.dtype not in DTYPES:
            raise ProfileError(
                f"a profile has the dtype '{self.dtype}'; there are {', '.join(DTYPES)}"
            )
        if self.measured_at:
            moment = parse_moment(self.measured_at)
            if not _IN_UTC.fullmatch(self.measured_at):
                object.__setattr__(self, "measured_at", moment_text(moment))

    @property
    def spread(self) -> float:
        """The standard deviation of the log of a sample, as if the percentiles were a normal's."""
        low, middle, high = (max(each, 1e-9) for each in (self.low, self.seconds, self.high))
        return max(math.log(middle / low), math.log(high / middle)) / NORMAL_95


@dataclass(frozen=True)
class DeviceFigures:
    """What the cluster said of a measured device: FLOP/s by dtype, B/s, and whether it is a CPU.

    `multiprocessors` are a GPU's, None where they are not known. Prediction scales by
    them (see `costs.prediction`).
    """

    peak_flops: Mapping[str, float]
    memory_bandwidth: float
    is_cpu: bool
    multiprocessors: int | None = None

    def __post_init__(self) -> None:
        peaks = self.peak_flops
        if not isinstance(peaks, Mapping) or not peaks or not set(peaks) <= set(DTYPES):
            raise ProfileError(
                "a device's peak_flops are no FLOP/s by dtype; the dtypes are " + ", ".join(DTYPES)
            )
        for figure in (*peaks.values(), self.memory_bandwidth):
            if not (isinstance(figure, (int, float)) and 0 < figure < math.inf):
                raise ProfileError(f"a device has a figure of {figure}; give numbers above 0")
        count = self.multiprocessors
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ProfileError(f"a device has {count} multiprocessors; give 1 or more, or none")

    @classmethod
    def of(cls, device: Device) -> Self | None:
        """Those of a device, or None where it has none."""
        if not device.peak_flops or not device.memory_bandwidth:
            return None
        return cls(
            dict(device.peak_flops),
            device.memory_bandwidth,
            is_cpu(device),
            device.multiprocessors,
        )

    def to_json(self) -> str:
        return json.dumps(self.document(), sort_keys=True)

    def document(self) -> dict[str, Any]:
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return known | {"peak_flops": dict(self.peak_flops)}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """ProfileError where `text` is something else."""
        try:
            found = json.loads(text)
            return cls(**found)
        except (ValueError, TypeError) as error:
            raise ProfileError(f"figures of a device cannot be read ({error})") from None


@dataclass(frozen=True)
class ProfiledProgram:
    """A source and how often it makes each call, by signature."""

    name: str
    library: str
    calls: Mapping[str, int]


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
