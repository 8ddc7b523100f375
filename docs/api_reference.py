"""Writes docs/api-reference.md from the docstrings: `python docs/api_reference.py`.

Every name of `placewright.__all__`: functions and classes with their signatures, docstrings and
public methods, errors with what each is raised for.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import placewright

PAGE = Path(__file__).parent / "api-reference.md"
HEAD = """\
# API reference

Every public name of `placewright` with its signature and docstring. This page is written from
the code (`python docs/api_reference.py`); examples, which the tests run, are in [API](api.md).
"""
WIDTH = 96


def reference() -> str:
    """The whole page: functions, classes, errors, and the names that are neither."""
    public = {name: getattr(placewright, name) for name in placewright.__all__}
    kinds = {name: each for name, each in public.items() if isinstance(each, type)}
    raised = {name: each for name, each in kinds.items() if issubclass(each, Exception)}
    functions = {name: each for name, each in public.items() if inspect.isfunction(each)}
    parts = [HEAD, "## Functions\n"]
    parts += [_function(name, each) for name, each in functions.items()]
    parts += ["## Classes\n"]
    parts += [_class(name, each) for name, each in kinds.items() if name not in raised]
    parts += ["## Errors\n", _errors(raised), "## Other names\n", _others(public)]
    return "\n".join(parts)


def _function(name: str, function: Any) -> str:
    return f"### {name}\n\n{_signature(name, function)}\n\n{_doc(function)}\n"


def _class(name: str, kind: type) -> str:
    head = f"### {name}\n\n{_signature(name, kind)}\n\n{_doc(kind)}\n"
    members = [_member(each, found, kind) for each, found in _public(kind).items()]
    return "\n".join([head, *members, ""] if members else [head])


def _public(kind: type) -> dict[str, Any]:
    """Its methods and properties, those of its bases too, in the order of the source."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__[:-1]):
        found |= {name: member for name, member in vars(each).items() if name[0] != "_"}
    shown = (property, cached_property, classmethod, types.FunctionType)
    return {name: member for name, member in found.items() if isinstance(member, shown)}


def _member(name: str, member: Any, kind: type) -> str:
    """A line: the attribute with its type, or the call, and the docstring's first paragraph."""
    if isinstance(member, property | cached_property):
        within = member.fget if isinstance(member, property) else member.func
        shown = f"{name}: {_annotation(inspect.signature(within).return_annotation)}"
    else:
        shown = _call(name, getattr(kind, name) if isinstance(member, classmethod) else member)
    said = _doc(member).partition("\n\n")[0].replace("\n", " ")
    return f"- `{shown}`" + (f": {said}" if said else "")


def _errors(raised: dict[str, type]) -> str:
    rows = [
        f"| `{name}` | `{kind.__base__.__name__}` | {getattr(kind, 'exit_code', '')} "
        f"| {_doc(kind).partition(chr(10))[0]} |"
        for name, kind in raised.items()
        if kind.__base__ is not None
    ]
    head = ["| name | derives from | exit code | raised for |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _others(public: dict[str, Any]) -> str:
    """Names of values and of unions of types."""
    lines = []
    for name, value in public.items():
        if isinstance(value, types.UnionType):
            lines.append(
                f"- `{name}`: {' or '.join(f'`{each.__name__}`' for each in get_args(value))}"
            )
        elif isinstance(value, str):
            lines.append(f"- `{name}`: the version, a text")
    return "\n".join([*lines, ""])


def _signature(name: str, called: Any) -> str:
    """A call as the code declares it, a parameter a line where it is long."""
    line = _call(name, called)
    if len(line) > WIDTH:
        signature = inspect.signature(called)
        parts = [f"    {each}," for each in _parameters(signature)]
        line = "\n".join([f"{name}(", *parts, f"){_result(signature)}"])
    return f"```py\n{line}\n```"


def _call(name: str, called: Any) -> str:
    signature = inspect.signature(called)
    return f"{name}({', '.join(_parameters(signature))}){_result(signature)}"


def _result(signature: inspect.Signature) -> str:
    returned = signature.return_annotation
    return (
        ""
        if returned in (inspect.Signature.empty, None, "None")
        else f" -> {_annotation(returned)}"
    )


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    keyword = False
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not keyword:
            keyword = True
            yield "*"
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        keyword = keyword or star == "*"
        note = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        yield f"{star}{each.name}{note}{_default(each)}"


def _default(parameter: inspect.Parameter) -> str:
    """`` = value``; `...` for one that is made anew each time."""
    value = parameter.default
    if value is parameter.empty:
        return ""
    if dataclasses.is_dataclass(value) and value == type(value)():
        return f" = {type(value).__name__}()"
    return " = ..." if repr(value).startswith("<") else f" = {value!r}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _doc(thing: Any) -> str:
    """The docstring as Markdown: what it shows of a session is a block of code."""
    text = re.sub(r" +# doctest: .*", "", inspect.getdoc(thing) or "")
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        f"```pycon\n{each}\n```" if each.lstrip().startswith(">>>") else each.replace("::", ":")
        for each in paragraphs
    )


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
