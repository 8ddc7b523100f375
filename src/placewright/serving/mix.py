"""What requests are: how many tokens go in, how many come out, and how many of each kind there are.

>>> [str(kind) for kind in read_kinds("prompt=512,output=128,share=3; prompt=4096,output=64")]
['prompt=512,output=128,share=0.75', 'prompt=4096,output=64,share=0.25']
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from placewright.errors import OptionError
from placewright.units import parse_whole

BEST = "best"
FORM = (
    "write it as prompt=TOKENS,output=TOKENS, with batch=SEQUENCES or batch=best if you like; "
    "several kinds of requests are parted by semicolons, each with its share=NUMBER"
)


@dataclass(frozen=True)
class Mix:
    """`prompt` tokens are read at once (prefill), `output` tokens made one by one (decode).

    `batch` sequences are served together: what the source says if None, or the ``best`` number.
    `share` of all requests are of this kind.
    """

    prompt: int
    output: int
    batch: int | Literal["best"] | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("prompt", "output", "batch"):
            value = getattr(self, name)
            if name == "batch" and value in (None, BEST):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
                raise OptionError(f"--mix: {name} is {value!r}; give a whole number from 1")
        if not (math.isfinite(self.share) and self.share > 0):
            raise OptionError(f"--mix: share is {self.share}; give a number above 0")

    @property
    def context(self) -> int:
        """Tokens that a sequence has when its request is done."""
        return self.prompt + self.output

    def __str__(self) -> str:
        batch = "" if self.batch is None else f",batch={self.batch}"
        share = "" if self.share == 1 else f",share={self.share:g}"
        return f"prompt={self.prompt},output={self.output}{batch}{share}"


def read_mix(text: str) -> Mix:
    """The one kind of request of ``prompt=P,output=N`` with or without ``batch=B``.

    >>> read_mix("prompt=512,output=128").context
    640
    """
    kinds = read_kinds(text)
    if len(kinds) > 1:
        raise OptionError(
            f"--mix {text}: several kinds of requests are planned for an engine; add --for ENGINE, "
            "or give one"
        )
    return kinds[0]


def read_kinds(text: str) -> tuple[Mix, ...]:
    """The kinds of requests, parted by semicolons; their shares add up to 1.

    ``batch`` is of all of them: said once.
    """
    kinds = [_read(part, text) for part in text.split(";")]
    batches = {kind.batch for kind in kinds if kind.batch is not None}
    if len(batches) > 1:
        raise OptionError(f"--mix {text}: all kinds of requests have one batch; say it once")
    batch = batches.pop() if batches else None
    total = sum(kind.share for kind in kinds)
    return tuple(replace(kind, batch=batch, share=kind.share / total) for kind in kinds)


def _read(part: str, text: str) -> Mix:
    found: dict[str, Any] = {}
    for word in part.split(","):
        name, _, value = (each.strip() for each in word.partition("="))
        if name not in ("prompt", "output", "batch", "share") or name in found:
            raise OptionError(f"--mix {text}: {FORM}")
        if not value.isascii():
            raise OptionError(f"--mix {text}: {FORM}")
        number = parse_whole(value)
        found[name] = value if number is None else number
    if not found.keys() >= {"prompt", "output"}:
        raise OptionError(f"--mix {text}: {FORM}")
    if "share" in found:
        found["share"] = _number(found["share"], text)
    return Mix(**found)


def _number(value: int | str, text: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise OptionError(f"--mix {text}: share is {value!r}; give a number above 0") from None
