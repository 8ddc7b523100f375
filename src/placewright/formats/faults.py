"""What pydantic has against a document: where each fault is, and which are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Place = tuple[str, ...]


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


def faults_of(error: ValidationError, document: Any) -> list[Fault]:
    """Those of `document`, without those of alternatives of a union that fit worse than another.

    The one that is meant has the fewest faults; of as many, the one that has them deepest inside.
    """
    errors = error.errors(include_url=False, include_input=False)
    faults = [_fault(each, document) for each in errors]
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


def _fault(error: ErrorDetails, document: Any) -> Fault:
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
    return Fault(tuple(place), error["msg"].removeprefix("Value error, "), alternative)
