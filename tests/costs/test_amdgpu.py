"""AMD's GPUs are known by the files of their driver."""

from __future__ import annotations

from pathlib import Path

from placewright.costs.amdgpu import amd_gpus
from placewright.costs.detect import cluster_of
from placewright.costs.machine import Gpu, Machine, Processor

NAMES = """\
# List of AMDGPU IDs
1.0.0
744C,\tC8,\tAMD Radeon RX 7900 XTX
744C,\tCC,\tAMD Radeon RX 7900 XT
164E,\tC1,\tAMD Radeon Graphics
"""
CPU = Processor("AMD Ryzen 9 7950X 16-Core Processor", 16, 4.5e9, frozenset({"avx2", "fma"}))


def card(root: Path, number: int, **files: str) -> None:
    """A card of the driver, with its connectors, which are no cards."""
    device = root / f"card{number}" / "device"
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(text + "\n")
    (root / f"card{number}-DP-1" / "device").mkdir(parents=True)


def radeon(revision: str, memory: int, **more: str) -> dict[str, str]:
    return {
        "vendor": "0x1002", "device": "0x744c", "revision": revision,
        "mem_info_vram_total": str(memory),
        "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16",
    } | more  # fmt: skip


def test_cards_are_named_by_the_list_or_by_themselves(tmp_path: Path) -> None:
    names = tmp_path / "amdgpu.ids"
    names.write_text(NAMES)
    cards = tmp_path / "drm"
    card(cards, 0, **radeon("0xc8", 24 * 2**30))
    card(cards, 1, **radeon("0x00", 2**30, product_name="AMD Instinct MI210"))
    card(cards, 2, **radeon("0xff", 2**30, max_link_speed="Unknown", max_link_width="0"))
    card(cards, 3, vendor="0x10de", device="0x2684", mem_info_vram_total="1")
    card(cards, 4, vendor="0x1002", device="0x744c")  # by another driver
    assert list(amd_gpus(cards, names)) == [
        ("AMD Radeon RX 7900 XTX", 24.0 * 2**30, (4, 16)),
        ("AMD Instinct MI210", 2.0**30, (4, 16)),
        ("AMD GPU 744c", 2.0**30, None),
    ]
    assert [name for name, *_ in amd_gpus(cards, tmp_path / "none")] == [
        "AMD GPU 744c", "AMD Instinct MI210", "AMD GPU 744c",
    ]  # fmt: skip
    assert list(amd_gpus(tmp_path / "nowhere")) == []


def test_a_known_card_is_a_device_without_cuda_and_graphics_of_a_processor_is_none() -> None:
    gpus = (
        Gpu(0, "NVIDIA GeForce RTX 3060", 12e9, (4, 16)),
        Gpu(1, "AMD Radeon RX 7900 XTX", 24e9, (4, 16), cuda=False),
        Gpu(2, "AMD Radeon Graphics", 5e8, None, cuda=False),
    )
    cluster = cluster_of(Machine("box", CPU, 64e9, gpus=gpus))
    assert cluster.device_names == ("gpu0", "gpu1", "cpu")
    _, radeon, cpu = cluster.devices
    assert (radeon.kind, radeon.run) == ("RX 7900 XTX", None)
    assert radeon.peak_flops is not None and radeon.peak_flops["fp16"] == 122.8e12
    assert radeon.memory is not None and 23e9 < radeon.memory < 24e9
    assert len(getattr(cpu.run, "cores", ())) == 14  # a core is left to each of two GPUs
    assert "AMD Radeon Graphics left out" in cluster.description
