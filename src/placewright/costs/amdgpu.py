"""What Linux tells of AMD's GPUs: the files of the driver amdgpu, and libdrm's list of names.

Nothing needs ROCm, so GPUs that llama.cpp drives by Vulkan are found too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from placewright.system.kernel_files import text_of

CARDS = Path("/sys/class/drm")
NAMES = Path("/usr/share/libdrm/amdgpu.ids")
AMD = "0x1002"
GENERATION = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s of a PCIe lane, as the kernel writes them."""


def amd_gpus(
    cards: Path = CARDS, names: Path = NAMES
) -> Iterator[tuple[str, float, tuple[int, int] | None]]:
    """Of each GPU, in the order of PCI: its name, memory in bytes, and PCIe generation and lanes.

    Graphics of a processor are among them. None where a GPU does not tell its link.
    """
    found = [each / "device" for each in cards.glob("card*") if re.fullmatch(r"card\d+", each.name)]
    for device in sorted(found, key=lambda each: str(each.resolve())):
        memory = _said(device / "mem_info_vram_total")
        if _said(device / "vendor") == AMD and memory.isdigit():
            yield _name(device, names), float(memory), _pcie(device)


def _name(device: Path, names: Path) -> str:
    """What the card says, else what libdrm calls its chip and revision, else these."""
    said = _said(device / "product_name")
    if said:
        return said
    chip, revision = (
        _said(device / each).removeprefix("0x").lower() for each in ("device", "revision")
    )
    for line in text_of(names).splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and [each.lower() for each in fields[:2]] == [chip, revision]:
            return fields[2]
    return f"AMD GPU {chip}"


def _pcie(device: Path) -> tuple[int, int] | None:
    speed, lanes = (_said(device / f"max_link_{each}") for each in ("speed", "width"))
    generation = GENERATION.get(speed.split(" ")[0])
    return (generation, int(lanes)) if generation and lanes.isdigit() and int(lanes) else None


def _said(path: Path) -> str:
    """What a file of one line says; nothing where it cannot be read."""
    return text_of(path).strip()
