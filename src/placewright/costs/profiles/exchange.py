"""Profiles in files that go from one store to another: ``placewright.profiles/1``.

>>> key = ProfileKey("aten.relu.default(fp32[8])", "NVIDIA H200", "torch 2.13.0")
>>> measured = Measured(2e-6, 1e-6, 3e-6, 20, "context", measured_at="2026-07-01T12:00:00Z")
>>> read_profiles(profiles_document([(key, measured)]), "mine.json") == {key: measured}
True
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.errors import FormatError, ProfileError
from placewright.formats import files

if TYPE_CHECKING:
    from placewright.formats.schema import ProfileGroupEntry

FORMAT = "placewright.profiles/1"
_COLUMNS = tuple(field.name for field in fields(Measured))


def profiles_document(entries: Iterable[tuple[ProfileKey, Measured]]) -> dict[str, Any]:
    """A ``placewright.profiles/1`` object: a group per device and library, with columns."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for key, measured in entries:
        group = groups.get((key.device, key.library))
        if group is None:
            group = {"device": key.device, "library": key.library, "signature": []}
            group |= {name: [] for name in _COLUMNS}
            groups[key.device, key.library] = group
        group["signature"].append(key.signature)
        for name in _COLUMNS:
            group[name].append(getattr(measured, name))
    return {"format": FORMAT, "groups": list(groups.values())}


def read_profiles(document: Any, path: str | Path) -> dict[ProfileKey, Measured]:
    """What a ``placewright.profiles/1`` object holds; FormatError names the fault."""
    from placewright.formats.schema import ProfilesFile  # pydantic is slow to import

    files.check_format(document, FORMAT, path)
    content = files.validate(ProfilesFile, document, path)
    found: dict[ProfileKey, Measured] = {}
    for number, group in enumerate(content.groups):
        where = f"{path}: field groups.{number}"
        for name in _COLUMNS:
            if len(getattr(group, name)) != len(group.signature):
                raise FormatError(
                    f"{where}.{name}: has {len(getattr(group, name))} entries, signature has "
                    f"{len(group.signature)}; give each op one"
                )
        _read_group(group, where, found)
    return found


def load_profiles(path: str | Path) -> dict[ProfileKey, Measured]:
    return read_profiles(files.read_document(path), path)


def _read_group(group: ProfileGroupEntry, where: str, found: dict[ProfileKey, Measured]) -> None:
    columns = zip(*(getattr(group, name) for name in _COLUMNS), strict=True)
    for entry, (signature, figures) in enumerate(zip(group.signature, columns, strict=True)):
        try:
            key, measured = ProfileKey(signature, group.device, group.library), Measured(*figures)
        except ProfileError as error:
            raise FormatError(f"{where}, entry {entry}: {error}") from None
        if found.setdefault(key, measured) is not measured:
            raise FormatError(
                f"{where}.signature.{entry}: '{signature}' is there twice for this device and "
                "library; leave one of them"
            )
