"""What a request is: how many tokens go in, how many come out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from placewright.errors import OptionError


@dataclass(frozen=True)
class Mix:
    """`prompt` tokens are read at once (prefill), `output` tokens made one by one (decode)."""

    prompt: int
    output: int

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
                raise OptionError(f"--mix: {each.name} is {value!r}; give a whole number from 1")

    @property
    def context(self) -> int:
        """Tokens that a sequence has when its request is done."""
        return self.prompt + self.output

    def __str__(self) -> str:
        return f"prompt={self.prompt},output={self.output}"


def read_mix(text: str) -> Mix:
    """The mix of ``prompt=P,output=N``.

    >>> read_mix("prompt=512,output=128").context
    640
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in ("prompt", "output") or name in found or not value.isascii():
            raise OptionError(f"--mix {text}: write it as prompt=TOKENS,output=TOKENS")
        found[name] = int(value) if value.isdigit() else value
    if len(found) < 2:
        raise OptionError(f"--mix {text}: write it as prompt=TOKENS,output=TOKENS")
    return Mix(**found)
