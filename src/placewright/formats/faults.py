"""What pydantic has against a document: where each fault is, which are meant, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

Place = tuple[str, ...]

_SENTENCES: Mapping[str, str] = {
    "missing": "is missing; give it",
    "dict_type": "must be an object of names and values",
    "model_type": "must be an object of names and values",
    "model_attributes_type": "must be an object of names and values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_too_short": "must not be empty",
    "too_short": "has too few entries; give at least {min_length}",
    "too_long": "has too many entries; give at most {max_length}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
}
"""By pydantic's names of faults, where its own words would not say what to write."""


class Fault(NamedTuple):
    """`place` has the parts of where it is in the document.

    `alternative`: of a union, where that is, and which of its alternatives the fault is one of;
    None where there is no union.
    """

    place: Place
    message: str
    alternative: tuple[Place, str] | None

    @property
    def field(self) -> str:
        """Such as ``devices.0.memory``."""
        return ".".join(self.place) or "top level"


def faults_of(
    error: ValidationError, document: Any, model: type[BaseModel] | None = None
) -> list[Fault]:
    """Those of `document`, without those of alternatives of a union that fit worse than another.

    The one that is meant has the fewest faults; of as many, the one that has them deepest inside.
    The fields of `model` are proposed for names that it does not know.
    """
    fields = set() if model is None else set(_fields(model.model_json_schema()))
    errors = error.errors(include_url=False, include_input=False)
    faults = [_fault(each, document, fields) for each in errors]
    unions: dict[Place, dict[str, list[Fault]]] = {}
    for each in faults:
        if each.alternative is not None:
            union, name = each.alternative
            unions.setdefault(union, {}).setdefault(name, []).append(each)
    meant = {
        (union, min(alternatives, key=lambda name: _misfit(alternatives[name])))
        for union, alternatives in unions.items()
    }
    return [each for each in faults if each.alternative is None or each.alternative in meant]


def _misfit(faults: list[Fault]) -> tuple[int, int]:
    return len(faults), -max(len(each.place) for each in faults)


def _fields(schema: Any) -> Iterator[str]:
    """The names of all fields of a JSON schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for each in schema.values():
            yield from _fields(each)


def _sentence(error: ErrorDetails, fields: Collection[str]) -> str:
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), fields, 1)
        return "is no field here; " + (f"did you mean '{near[0]}'?" if near else "take it out")
    words = _SENTENCES.get(error["type"])
    if words is None:
        return error["msg"].removeprefix("Value error, ")
    return words.format_map(error.get("ctx", {}))


def _fault(error: ErrorDetails, document: Any, fields: Collection[str]) -> Fault:
    """The first part of its location that the document does not have names an alternative."""
    place: list[str] = []
    alternative = None
    missing = len(error["loc"]) - 1 if error["type"] == "missing" else None  # the last part only
    for number, part in enumerate(error["loc"]):
        if isinstance(document, dict) and (part in document or number == missing):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part]
        else:
            alternative = alternative or (tuple(place), str(part))
            continue
        place.append(str(part))
    return Fault(tuple(place), _sentence(error, fields), alternative)
