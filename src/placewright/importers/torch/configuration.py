"""Configurations of Transformers models: of a file, or a model type's own, with fields changed.

Transformers derives some fields from others (the size of a head from those of the layer and their
number, the types of layers from how many there are). So fields are changed in what is given, before
they are derived. A file has the derived ones too, as Transformers writes them: those that follow
from the rest of it are left out first.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placewright.errors import FormatError, OptionError
from placewright.formats import files

_SIZES = (
    "batch",
    "sequence",
    "context",
    "phase",
    "weights",
)  # of a source, not of its configuration
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # organisation/model


def configuration(source: str, parameters: Mapping[str, str], config: str) -> Any:
    """The configuration of ``config.json``, of a directory with one, or of a model type.

    `parameters` are fields to change, by their names or by others that Transformers has for them;
    their values are read as JSON where they are that, else as text. FormatError for a file that is
    none; OptionError, which names `config`, for a type or a field that there is not.
    """
    kind, document = _document(source)
    try:
        plain = _built(kind, document)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"{source}: not a valid {kind} configuration ({reason})") from error
    if not parameters:
        return plain
    changed = _changed(parameters, plain, config)
    own = plain.attribute_map
    # Where both names of a field are given, Transformers takes the other one.
    document = {key: each for key, each in document.items() if own.get(key) not in changed}
    try:
        return _built(kind, {**_without_derived(kind, document, plain.to_dict()), **changed})
    except Exception as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"hf:{config}: {reason}") from error


def _changed(parameters: Mapping[str, str], plain: Any, config: str) -> dict[str, Any]:
    """The fields to change by their own names, as `plain` has them, and their values."""
    known, own = plain.to_dict(), plain.attribute_map
    changed: dict[str, Any] = {}
    for key, text in parameters.items():
        name = key if key in known else own.get(key, key)
        if name not in known:
            hint = difflib.get_close_matches(key, [*_SIZES, *known], 1)
            raise OptionError(
                f"hf:{config}: a {plain.model_type} configuration has no '{key}'"
                + (f"; did you mean '{hint[0]}'?" if hint else "")
            )
        if name in changed:
            raise OptionError(f"hf:{config}: '{key}' is another name of '{name}'; give one of them")
        changed[name] = _value(text)
    return changed


def configuration_file(source: str) -> Path | None:
    """The file that is read for ``hf:CONFIG``; None where it is a model type."""
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    return path if path.suffix == ".json" or path.is_file() else None


def _document(source: str) -> tuple[str, dict[str, Any]]:
    """The model type, and the fields that are given."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    path = configuration_file(source)
    if path is not None:
        document = files.read_document(path)
        if not isinstance(document, dict) or not isinstance(document.get("model_type"), str):
            raise FormatError(f"{path}: not a Transformers configuration: it has no model_type")
        kind: str = document["model_type"]
    else:
        document, kind = {}, source
    if kind not in CONFIG_MAPPING:
        if source == kind and _HUB_NAME.fullmatch(source):
            raise OptionError(
                f"hf:{source} looks like a model of a hub, and nothing is looked up on the "
                f"network; download its config.json (hf download {source} config.json prints "
                "where it is) and give that path, as in hf:PATH/config.json"
            )
        hint = difflib.get_close_matches(kind, list(CONFIG_MAPPING), 1)
        raise OptionError(
            f"hf:{source}: no Transformers model type '{kind}'"
            + (f"; did you mean '{hint[0]}'?" if hint else "" if path else " and no such file")
        )
    return kind, document


def _built(kind: str, document: Mapping[str, Any]) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[kind].from_dict(copy.deepcopy(dict(document)))


def _without_derived(
    kind: str, document: Mapping[str, Any], built: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a document that make the configuration what is `built`; the rest follow."""
    left = dict(document)
    for key in document:
        rest = {name: value for name, value in left.items() if name != key}
        try:
            follows = _built(kind, rest).to_dict() == built
        except Exception:  # whatever a model type raises where it is missing
            follows = False
        if follows:
            left = rest
    return left


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
