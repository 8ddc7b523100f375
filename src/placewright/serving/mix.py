"""What a request is: how many tokens go in, how many come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from placewright.errors import OptionError

BEST = "best"
FORM = "write it as prompt=TOKENS,output=TOKENS, and batch=SEQUENCES or batch=best if you like"


@dataclass(frozen=True)
class Mix:
    """`prompt` tokens are read at once (prefill), `output` tokens made one by one (decode).

    `batch` sequences are served together: what the source says if None, or the ``best`` number.
    """

    prompt: int
    output: int
    batch: int | Literal["best"] | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output", "batch"):
            value = getattr(self, name)
            if name == "batch" and value in (None, BEST):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
                raise OptionError(f"--mix: {name} is {value!r}; give a whole number from 1")

    @property
    def context(self) -> int:
        """Tokens that a sequence has when its request is done."""
        return self.prompt + self.output

    def __str__(self) -> str:
        more = "" if self.batch is None else f",batch={self.batch}"
        return f"prompt={self.prompt},output={self.output}{more}"


def read_mix(text: str) -> Mix:
    """The mix of ``prompt=P,output=N`` with or without ``batch=B``.

    >>> read_mix("prompt=512,output=128").context
    640
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in ("prompt", "output", "batch") or name in found or not value.isascii():
            raise OptionError(f"--mix {text}: {FORM}")
        found[name] = int(value) if value.isdigit() else value
    if not found.keys() >= {"prompt", "output"}:
        raise OptionError(f"--mix {text}: {FORM}")
    return Mix(**found)
