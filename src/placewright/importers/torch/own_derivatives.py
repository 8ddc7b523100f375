"""Derivatives that a module states itself, which export does not show.

The backward of a `torch.autograd.Function` and what a hook makes of a gradient are Python: an
exported program has the calls of the forward alone, and its backward is their derivative. So while
a program is traced it is noted who states one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

_MOST_NAMED = 3


@contextlib.contextmanager
def own_derivatives() -> Iterator[list[str]]:
    """The names of those that were met, in their order and each once."""
    import torch

    names: list[str] = []
    apply: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
    register: Callable[..., Any] = torch.Tensor.register_hook

    def note(name: str) -> None:
        if name not in names:
            names.append(name)

    def applied(function: type, *args: Any, **kwargs: Any) -> Any:
        if not function.__module__.startswith("torch._"):  # an operator's: joint programs have it
            note(function.__name__)
        return apply(function, *args, **kwargs)

    def registered(tensor: torch.Tensor, hook: Callable[..., Any]) -> Any:
        note("Tensor.register_hook")
        return register(tensor, hook)

    with (
        patch.object(torch.autograd.Function, "apply", classmethod(applied)),
        patch.object(torch.Tensor, "register_hook", registered),
    ):
        yield names


def remark(names: Sequence[str]) -> str:
    """What a person should know of a module that states these."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"it states derivatives of its own ({', '.join(names[:_MOST_NAMED])}{more}), which an "
        "exported program does not show: the plan has the derivative of what the forward computes "
        "instead, so gradients of a run are not the module's"
    )
