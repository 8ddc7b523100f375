"""Options that several commands share, taken as one parameter: a dataclass of them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclass parameters as options of their own.

    Typer reads commands by their signature, so the fields stand there, each with its annotation and
    default, in the place of the parameter.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if dataclasses.is_dataclass(hint := hints[name]):
            groups[name] = typing.cast(type, hint)
            shown += _fields(groups[name])
        else:
            shown.append(parameter.replace(annotation=hint, kind=parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in _fields(group)})
        command(**given)

    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in shown}
    return called


@functools.cache
def _fields(group: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=hints[each.name],
        )
        for each in dataclasses.fields(group)
    ]
