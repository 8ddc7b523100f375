"""A line fitted to times of transfers finds the link they came from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.costs.link_fit import KEPT, fit
from placewright.errors import ExecutionError

SIZES = [2.0**power for power in range(10, 27)]


def times(latency: float, bandwidth: float, noise: float = 0.0, seed: int = 0) -> list[float]:
    shaken = np.random.default_rng(seed).uniform(1 - noise, 1 + noise, len(SIZES))
    return [(latency + size / bandwidth) * by for size, by in zip(SIZES, shaken, strict=True)]


@pytest.mark.parametrize("latency", [0.0, 1e-6, 3e-5, 2e-3])
@pytest.mark.parametrize("bandwidth", [1e7, 1.25e9, 2e11])
def test_exact_times_give_their_latency_and_bandwidth(latency: float, bandwidth: float) -> None:
    found = fit(SIZES, times(latency, bandwidth))
    assert found.bandwidth == pytest.approx(bandwidth, rel=1e-2)
    assert found.latency == pytest.approx(latency, rel=1e-2, abs=SIZES[0] / bandwidth / 50)
    assert found.largest_error < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_the_line_by_less_than_itself(seed: int) -> None:
    found = fit(SIZES, times(4e-5, 1.5e9, noise=0.1, seed=seed))
    assert found.latency == pytest.approx(4e-5, rel=0.1)
    assert found.bandwidth == pytest.approx(1.5e9, rel=0.1)
    assert 0 < found.median_error <= found.largest_error < 0.25


def test_a_third_of_the_sizes_disturbed_moves_nothing() -> None:
    measured = times(4e-5, 1.5e9)
    for disturbed in (2, 8, 14, 15, 16):
        measured[disturbed] *= 50
    found = fit(SIZES, measured)
    assert found.latency == pytest.approx(4e-5, rel=1e-2)
    assert found.bandwidth == pytest.approx(1.5e9, rel=1e-2)
    assert found.median_error < 0.01 and found.largest_error == pytest.approx(0.98, abs=0.01)


def test_no_line_of_a_grid_is_closer_to_most_sizes() -> None:
    measured = np.array(times(1e-4, 5e8, noise=0.4, seed=3))
    size = np.array(SIZES)

    def score(latency: float, bandwidth: float) -> float:
        errors = np.abs(np.log((latency + size / bandwidth) / measured))
        return float(np.sort(errors)[:14].mean())

    found = fit(SIZES, measured.tolist())
    grid = [
        score(latency, bandwidth)
        for latency in np.geomspace(1e-6, 1e-2, 120)
        for bandwidth in np.geomspace(1e7, 1e10, 120)
    ]
    assert score(found.latency, found.bandwidth) <= min(grid) * 1.001


def test_errors_are_shares_of_the_times_measured() -> None:
    measured = times(4e-5, 1.5e9, noise=0.2, seed=1)
    found = fit(SIZES, measured)
    errors = [
        abs(found.seconds(size) / took - 1) for size, took in zip(SIZES, measured, strict=True)
    ]
    assert found.median_error == pytest.approx(np.median(errors), rel=1e-3, abs=1e-6)
    assert found.largest_error == pytest.approx(max(errors), rel=1e-3, abs=1e-6)


MIB = 2.0**20
SIZE = np.array(SIZES)
CURVES = {  # as transfers between processes of one machine, and over networks, are known to bend
    "past the caches": 4e-5 + (0.4e-3 * np.minimum(SIZE, 2 * MIB)
                               + 0.9e-3 * np.maximum(SIZE - 2 * MIB, 0)) / MIB,
    "little by little": 4e-5 + SIZE * (0.3e-3 + 0.6e-3 * SIZE / (SIZE + 2 * MIB)) / MIB,
    "early": np.where(SIZE <= MIB / 4, 4e-5 + 0.2e-3 * SIZE / MIB, 4e-5 + 0.6e-3 * SIZE / MIB),
    "late": np.where(SIZE <= 16 * MIB, 3e-5 + 0.3e-3 * SIZE / MIB, 3e-5 + 0.5e-3 * SIZE / MIB),
    "another protocol": np.where(SIZE < 2**16, 2e-5 + SIZE / 2e9, 8e-5 + SIZE / 3e9),
}  # fmt: skip


def errors_of(curve: str, kept: float) -> np.ndarray:
    """Relative errors, at all sizes, of lines fitted to times with a noise of 5 %."""
    true, found = CURVES[curve], []
    for seed in range(10):
        shaken = true * np.exp(np.random.default_rng(seed).normal(0, 0.05, len(SIZES)))
        line = fit(SIZES, shaken.tolist(), kept=kept)
        found.append([abs(line.seconds(size) / t - 1) for size, t in zip(SIZES, true, strict=True)])
    return np.array(found)


@pytest.mark.parametrize("curve", CURVES)
def test_of_a_bent_curve_four_fifths_are_followed_better_than_three(curve: str) -> None:
    fewer, more = errors_of(curve, 0.6), errors_of(curve, KEPT)
    assert more.mean() < fewer.mean() * 1.03
    assert np.median(more.max(axis=1)) < np.median(fewer.max(axis=1)) * 1.12
    assert np.median(more) < np.median(fewer) + 0.08


def test_a_protocol_for_large_messages_does_not_hide_the_latency_of_small_ones() -> None:
    seconds = CURVES["another protocol"].tolist()
    assert fit(SIZES, seconds, kept=0.6).largest_error > 2.5
    assert fit(SIZES, seconds).largest_error < 0.6


def test_errors_are_told_by_decade_of_sizes() -> None:
    found = fit(SIZES, CURVES["late"].tolist())
    starts, errors = zip(*found.decades, strict=True)
    assert starts == (1e3, 1e4, 1e5, 1e6, 1e7)
    assert max(errors[:4]) < 0.01 and 0.3 < errors[4] < 0.5


@pytest.mark.parametrize(
    ("sizes", "seconds", "complaint"),
    [
        ([1e3, 1e6], [1e-4, 1e-3], "transfers of 2 sizes were measured"),
        ([1e3, 1e3, 1e3], [1e-4, 1e-4, 1e-4], "transfers of 1 sizes were measured"),
        ([1e3, 1e5, 1e7], [1e-4, 1e-3], "a line needs the times of 3 or more"),
        ([1e3, 1e5, 1e7], [1e-4, 0.0, 1e-3], "to take no time"),
        ([1e3, 1e5, 1e7], [1e-4, math.nan, 1e-3], "to take no time"),
        ([1e3, 1e5, 1e7], [1e-4, math.inf, 1e-3], "to take no time"),
        ([0.0, 1e5, 1e7], [1e-4, 1e-4, 1e-3], "not above 0 bytes"),
        ([1e3, 1e5, 1e7], [1e-4, 1e-4, 1e-4], "took no longer than those of 1000"),
        ([1e3, 1e5, 1e7], [3e-4, 2e-4, 1e-4], "took no longer than those of 1000"),
    ],
)
def test_what_no_link_can_have_done_is_refused(
    sizes: list[float], seconds: list[float], complaint: str
) -> None:
    with pytest.raises(ExecutionError, match=complaint):
        fit(sizes, seconds)
