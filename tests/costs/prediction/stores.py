"""Stores of made-up measurements: devices whose ops take what a formula says, with noise."""

from __future__ import annotations

import numpy as np

from placewright.costs.profiles.entry import (
    DeviceFigures,
    Measured,
    ProfiledProgram,
    ProfileKey,
)
from placewright.costs.profiles.store import ProfileStore

TORCH = "torch 2.13.0"
SLOW, FAST = "Slow CPU, 1 core", "Fast CPU, 2 cores"
FIGURES = {
    SLOW: DeviceFigures({"fp32": 5e10}, 1e10, True),
    FAST: DeviceFigures({"fp32": 1e11}, 2e10, True),
}
OVERHEAD, COMPUTING, MOVING = 5e-6, 1.6, 1.4


def true_seconds(device: str, flops: float, moved: float) -> float:
    figures = FIGURES[device]
    computing = COMPUTING * flops / figures.peak_flops["fp32"]
    return OVERHEAD + max(computing, MOVING * moved / figures.memory_bandwidth)


def model(rng: np.random.Generator, size: int) -> dict[str, tuple[float, float]]:
    """Calls of a model by signature: FLOPs and bytes."""
    calls = {}
    for layer in range(size):
        m, n, k = (int(each) for each in rng.integers(16, 1500, 3))
        calls[f"aten.linear.default(float32[{m},{k}], float32[{n},{k}])"] = (
            2.0 * m * n * k,
            4.0 * (m * k + n * k + m * n),
        )
        count = int(10 ** rng.uniform(3, 7))
        calls[f"aten.gelu.default(float32[{count}], {layer})"] = 0.0, 8.0 * count
    return calls


def made_store(path, *, models: int = 4, size: int = 10, noise: float = 0.0, seed: int = 0):  # type: ignore[no-untyped-def]
    """A store of `models` models on both devices."""
    rng = np.random.default_rng(seed)
    with ProfileStore(path) as store:
        for name, figures in FIGURES.items():
            store.put_figures(name, figures)
        for number in range(models):
            calls = model(rng, size)
            store.put_program(ProfiledProgram(f"hf:model{number}", TORCH, dict.fromkeys(calls, 2)))
            for device in FIGURES:
                store.put(measurements(device, calls, rng, noise))
    return path


def measurements(
    device: str, calls: dict[str, tuple[float, float]], rng: np.random.Generator, noise: float
) -> dict[ProfileKey, Measured]:
    found = {}
    for signature, (flops, moved) in calls.items():
        seconds = true_seconds(device, flops, moved) * float(np.exp(noise * rng.normal()))
        found[ProfileKey(signature, device, TORCH)] = Measured(
            seconds, seconds / 1.1, seconds * 1.1, 20, "context",
            flops=flops, bytes_read=moved / 2, bytes_written=moved / 2, dtype="fp32",
        )  # fmt: skip
    return found
