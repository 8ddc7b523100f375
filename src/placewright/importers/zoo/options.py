"""Hyper-parameters of the zoo's models, and reading them from text.

A family of models declares its hyper-parameters as a frozen dataclass derived from `Hyper`; each
field is made by `number`, `fraction`, `choice` or `switch`, which carry what text may say.

>>> read_spec("gpt2?batch=4&context=128")
('gpt2', {'batch': '4', 'context': '128'})
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from placewright.errors import OptionError
from placewright.graph import DTYPES

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def number(default: int, minimum: int = 1) -> Any:
    """A whole number, at least `minimum`."""
    return field(default=default, metadata={"kind": "number", "minimum": minimum})


def fraction(default: float | None) -> Any:
    """A number from 0 to 1; None stands for a default that depends on other parameters."""
    return field(default=default, metadata={"kind": "fraction"})


def choice(default: str, *choices: str) -> Any:
    """One of `choices`."""
    return field(default=default, metadata={"kind": "choice", "choices": choices})


def switch(default: bool) -> Any:
    """True or false."""
    return field(default=default, metadata={"kind": "switch"})


@dataclass(frozen=True, kw_only=True)
class Hyper:
    """What every model of the zoo takes: samples per run, number format, and the optimizer.

    `optimizer` concerns training only: with ``sgd`` or ``adam`` each op that holds parameters
    gets an update op.
    """

    batch: int = number(1)
    dtype: str = choice("fp16", *DTYPES)
    optimizer: str = choice("none", "none", "sgd", "adam")


AnyHyper = TypeVar("AnyHyper", bound=Hyper)


def defaults(hyper: Hyper) -> dict[str, Any]:
    """Name → value of every hyper-parameter, in order of declaration, the common ones last."""
    names = [each.name for each in fields(hyper)]
    common = [each.name for each in fields(Hyper)]
    ordered = [*(name for name in names if name not in common), *common]
    return {name: getattr(hyper, name) for name in ordered}


def read_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split ``NAME?key=value&key=value``; OptionError if it does not read so."""
    name, _, query = spec.partition("?")
    return name, read_query(f"zoo model '{spec}'", query, "is no parameter: write key=value")


def read_query(where: str, query: str, wrong: str) -> dict[str, str]:
    """``key=value&…`` as a mapping; OptionError where a key comes twice or a part reads otherwise.

    It begins with `where`, such as ``zoo model 'gpt2?batch=4'``; of such a part it says `wrong`.
    """
    texts: dict[str, str] = {}
    for part in query.split("&") if query else ():
        key, equals, text = part.partition("=")
        if not (key and equals and text):
            raise OptionError(f"{where}: '{part}' {wrong}")
        if key in texts:
            raise OptionError(f"{where}: '{key}' is given twice; give it once")
        texts[key] = text
    return texts


def override(where: str, hyper: AnyHyper, texts: Mapping[str, str]) -> AnyHyper:
    """`hyper` with the values that `texts` name; OptionError for an unknown key or bad value.

    It begins with `where`, such as ``zoo model 'gpt2'``.
    """
    known = {each.name: each.metadata for each in fields(hyper)}
    values = {}
    for key, text in texts.items():
        if key not in known:
            raise OptionError(
                f"{where} has no parameter '{key}'; {did_you_mean(key, known)}"
                f"it has {', '.join(defaults(hyper))}"
            )
        values[key] = _parse(f"{where}: {key}={text}", text, known[key])
    return replace(hyper, **values)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``"did you mean 'x' or 'y'? "``, or nothing where nothing is close but for its case."""
    close = difflib.get_close_matches(wrong.casefold(), list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(each) for each in close)}? " if close else ""


def _parse(where: str, text: str, rule: Mapping[str, Any]) -> Any:
    if rule["kind"] == "number":
        return _parse_number(where, text, rule["minimum"])
    if rule["kind"] == "fraction":
        return _parse_fraction(where, text)
    if rule["kind"] == "switch":
        if text.lower() not in (*_YES, *_NO):
            raise OptionError(f"{where}: must be true or false")
        return text.lower() in _YES
    if text not in rule["choices"]:
        raise OptionError(
            f"{where}: {did_you_mean(text, rule['choices'])}must be one of "
            f"{', '.join(rule['choices'])}"
        )
    return text


def _parse_number(where: str, text: str, minimum: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"{where}: must be a whole number") from None
    if not minimum <= value < 2**31:
        raise OptionError(f"{where}: must be from {minimum} to {2**31 - 1}")
    return value


def _parse_fraction(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise OptionError(f"{where}: must be a number from 0 to 1")
    return value
