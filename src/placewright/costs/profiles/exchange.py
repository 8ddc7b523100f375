"""Profiles in files that go from one store to another: ``placewright.profiles/1``.

>>> key = ProfileKey("aten.relu.default(fp32[8])", "NVIDIA H200", "torch 2.13.0")
>>> measured = Measured(2e-6, 1e-6, 3e-6, 20, "context", measured_at="2026-07-01T12:00:00Z")
>>> document = profiles_document(Profiles({key: measured}))
>>> read_profiles(document, "mine.json").measured == {key: measured}
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.costs.profiles.entry import (
    DeviceFigures,
    Measured,
    ProfiledProgram,
    ProfileKey,
)
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import FormatError, ProfileError
from placewright.formats import files

if TYPE_CHECKING:
    from placewright.formats.schema import ProfileGroupEntry

FORMAT = "placewright.profiles/1"
_COLUMNS = {field.name: field.default for field in fields(Measured)}
"""Columns of a group, and what stands for one that is left out."""


@dataclass(frozen=True)
class Profiles:
    """What a file holds: measurements, figures of their devices, and the programs measured."""

    measured: Mapping[ProfileKey, Measured]
    figures: Mapping[str, DeviceFigures] = field(default_factory=dict)
    programs: Sequence[ProfiledProgram] = ()

    @classmethod
    def of(cls, store: ProfileStore, **chosen: str | None) -> Profiles:
        """What `ProfileStore.entries` gives, and all that the store knows about it."""
        measured = dict(store.entries(**chosen))
        devices = {key.device for key in measured}
        known = {(key.library, key.signature) for key in measured}
        return cls(
            measured,
            {name: each for name, each in store.figures().items() if name in devices},
            [p for p in store.programs() if all((p.library, each) in known for each in p.calls)],
        )

    def put(self, store: ProfileStore) -> int:
        """Keep it all; how many of the measurements are new."""
        for name, figures in self.figures.items():
            store.put_figures(name, figures)
        for program in self.programs:
            store.put_program(program)
        return store.put(self.measured)


def profiles_document(profiles: Profiles) -> dict[str, Any]:
    """A ``placewright.profiles/1`` object: a group per device and library, with columns."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for key, measured in profiles.measured.items():
        group = groups.get((key.device, key.library))
        if group is None:
            group = {"device": key.device, "library": key.library, "signature": []}
            if key.device in profiles.figures:
                group["figures"] = profiles.figures[key.device].document()
            group |= {name: [] for name in _COLUMNS}
            groups[key.device, key.library] = group
        group["signature"].append(key.signature)
        for name in _COLUMNS:
            group[name].append(getattr(measured, name))
    programs = [
        {"name": each.name, "library": each.library, "calls": dict(each.calls)}
        for each in profiles.programs
    ]
    return {"format": FORMAT, "groups": list(groups.values()), "programs": programs}


def read_profiles(document: Any, path: str | Path) -> Profiles:
    """What a ``placewright.profiles/1`` object holds; FormatError names the fault."""
    from placewright.formats.schema import ProfilesFile  # pydantic is slow to import

    files.check_format(document, FORMAT, path)
    content = files.validate(ProfilesFile, document, path)
    found: dict[ProfileKey, Measured] = {}
    figures = {}
    for number, group in enumerate(content.groups):
        where = f"{path}: field groups.{number}"
        _read_group(group, where, found)
        if group.figures is not None:
            try:
                figures[group.device] = DeviceFigures(**group.figures.model_dump())
            except ProfileError as error:
                raise FormatError(f"{where}.figures: {error}") from None
    programs = [ProfiledProgram(each.name, each.library, each.calls) for each in content.programs]
    return Profiles(found, figures, programs)


def load_profiles(path: str | Path) -> Profiles:
    return read_profiles(files.read_document(path), path)


def _read_group(group: ProfileGroupEntry, where: str, found: dict[ProfileKey, Measured]) -> None:
    columns = {}
    for name, default in _COLUMNS.items():
        column = getattr(group, name)
        columns[name] = [default] * len(group.signature) if column is None else column
        if len(columns[name]) != len(group.signature):
            raise FormatError(
                f"{where}.{name}: has {len(columns[name])} entries, signature has "
                f"{len(group.signature)}; give each op one"
            )
    rows = zip(group.signature, *columns.values(), strict=True)
    for entry, (signature, *figures) in enumerate(rows):
        try:
            key, measured = ProfileKey(signature, group.device, group.library), Measured(*figures)
        except ProfileError as error:
            raise FormatError(f"{where}, entry {entry}: {error}") from None
        if found.setdefault(key, measured) is not measured:
            raise FormatError(
                f"{where}.signature.{entry}: '{signature}' is there twice for this device and "
                "library; leave one of them"
            )
