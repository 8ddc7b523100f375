"""What may stand behind a GGUF file: ``FILE.gguf?phase=decode&context=8192&batch=4``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from placewright.errors import OptionError
from placewright.importers.zoo.options import Hyper, choice, number, override, read_query

DEFAULT_CONTEXT = 4096
"""Tokens, or fewer for a model made for fewer."""


@dataclass(frozen=True, kw_only=True)
class GgufOptions(Hyper):
    """As the zoo has them; `dtype` is that of activations."""

    phase: str = choice("forward", "forward", "prefill", "decode")
    context: int = number(DEFAULT_CONTEXT)


def read_options(query: str, path: Path, longest: int | None) -> GgufOptions:
    """Read ``key=value&…`` of a model made for `longest` tokens; OptionError names the fault.

    >>> read_options("phase=decode&batch=4", Path("model.gguf"), 2048).context
    2048
    """
    texts = read_query(str(path), query, "is no option; write key=value")
    if "optimizer" in texts:
        raise OptionError(f"{path}: a GGUF file is for inference; leave out 'optimizer'")
    context = min(DEFAULT_CONTEXT, longest or DEFAULT_CONTEXT)
    return override(str(path), GgufOptions(context=context), texts)
