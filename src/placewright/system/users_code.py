"""Code of the user's own, named by text: ``PACKAGE.MODULE:NAME``. To name it is to run it."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from placewright.errors import OptionError


def named(place: str, name: str, scheme: str = "") -> Any:
    """What ``place:name`` names; the working directory is searched first, as `python -m` does.

    `scheme` is what a person writes before it, such as ``torch:``. OptionError says what there is
    not, and for a file how its module is written.
    """
    _refuse_file(place, name, scheme)
    said = f"{scheme}{place}:{name}"
    found: Any = _imported(place, said)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in vars(found) if not each.startswith("_")]
            hint = difflib.get_close_matches(part, known, 1)
            raise OptionError(
                f"{said}: '{place}' has no '{part}'"
                + (f"; did you mean '{hint[0]}'?" if hint else "; name what is in it")
            )
        found = getattr(found, part)
    return found


def _refuse_file(place: str, name: str, scheme: str) -> None:
    """Refuse the path of a file where a module belongs, and say how the module is written."""
    path = Path(place)
    if path.suffix != ".py" and "/" not in place:
        return
    module, folder = path.name.removesuffix(".py"), path.parent
    here = f"{scheme}{module}:{name}"
    if folder == Path():
        advice = f"write {here}"
    elif folder.is_absolute() or any("." in part for part in folder.parts):
        advice = f"run from {folder} and write {here}"
    else:
        dotted = ".".join((*folder.parts, module))
        advice = f"write {scheme}{dotted}:{name}, or run from {folder} and write {here}"
    raise OptionError(f"{scheme}{place}:{name}: '{place}' is a file, not a module; {advice}")


def _imported(place: str, said: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = error.name or place
        if place == missing or place.startswith(f"{missing}."):
            raise OptionError(
                f"{said}: there is no module '{missing}'; run from the directory that holds it, "
                "or install it"
            ) from None
        raise OptionError(
            f"{said}: '{place}' imports '{missing}', which is not installed"
        ) from error
    except (Exception, SystemExit) as error:  # a script that ends itself is no module to import
        raise OptionError(
            f"{said}: importing '{place}' raised {type(error).__name__}: {error}"
        ) from error
