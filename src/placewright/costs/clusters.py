"""Ready-made clusters: presets in data files, and this machine.

>>> load_cluster("2x3090").device_names
('gpu0', 'gpu1')
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from placewright.cluster import Cluster, naming_file
from placewright.costs.catalog import THIS_MACHINE, complete
from placewright.errors import ClusterError
from placewright.formats import files
from placewright.options import check_kind

CATALOG = "placewright.costs.catalog"


@dataclass(frozen=True)
class PresetEntry:
    """A ready-made cluster: what `load_cluster` takes, what it is, and its devices in short."""

    name: str
    description: str
    devices: str


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster of a preset or of a YAML or JSON file, with every figure filled in.

    ``this-machine`` is detected. ClusterError if there is no such preset or file; FormatError
    and ClusterError for a file at fault.
    """
    check_kind(name_or_path, (str, Path), "cluster", "the name of a preset, or a file")
    name = str(name_or_path)
    if name.casefold() == THIS_MACHINE:
        from placewright.costs.detect import detect  # takes as long to import as all of this

        return detect()
    for preset in _files_of_presets():
        if preset.casefold() == name.casefold():
            return complete(_preset(preset))
    if not _exists(name):
        raise ClusterError(_no_such_cluster(name))
    cluster = Cluster.load(name)
    with naming_file(cluster):
        return complete(cluster)


def presets() -> tuple[PresetEntry, ...]:
    """The ready-made clusters, by name; ``this-machine`` comes last and is not detected here."""
    entries = []
    for name in _files_of_presets():
        cluster = _preset(name)
        entries.append(PresetEntry(name, cluster.description, device_summary(cluster)))
    what = "The CPU and GPUs of the machine that placewright runs on."
    return (*entries, PresetEntry(THIS_MACHINE, what, "detected when asked for"))


def device_summary(cluster: Cluster) -> str:
    """The devices of `cluster` in short, such as ``2 × V100 32GB, 2 × P100``."""
    counts = Counter(device.kind for device in cluster.devices)
    return ", ".join(f"{count} × {kind}" if count > 1 else kind for kind, count in counts.items())


def preset_names() -> tuple[str, ...]:
    """The names of `presets`, without reading them."""
    return (*_files_of_presets(), THIS_MACHINE)


def _files_of_presets() -> tuple[str, ...]:
    folder = resources.files(CATALOG).joinpath("clusters")
    names = (entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return tuple(sorted(name.removesuffix(".yaml") for name in names))


@cache
def _preset(name: str) -> Cluster:
    file = f"{name}.yaml"
    text = resources.files(CATALOG).joinpath("clusters", file).read_text("utf-8")
    return Cluster.from_document(files.parse_yaml(text, file), file)


def _no_such_cluster(name: str) -> str:
    if name == "-":
        return files.NO_STANDARD_INPUT
    names = preset_names()
    close = difflib.get_close_matches(name.casefold(), [each.casefold() for each in names], n=2)
    if close:
        meant = " or ".join(f"'{each}'" for each in names if each.casefold() in close)
        return f"no cluster file or preset '{name}'; did you mean {meant}?"
    return f"no cluster file or preset '{name}'; the presets are {', '.join(names)}"


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name too long to be one
        return False
