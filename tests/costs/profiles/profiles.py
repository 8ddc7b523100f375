"""Profiles for the tests, and stores that hold some."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.costs.profiles.store import ProfileStore
from placewright.graph import DTYPES

H200, XEON, TORCH, OLD = "NVIDIA H200", "Intel(R) Xeon(R), 1 core", "torch 2.13.0", "torch 2.6.0"
RELU, LINEAR = "aten.relu.default(fp32[8])", "aten.linear.default(fp32[1,8], fp32[8,8], fp32[8])"


def measured(seconds: float, at: str = "2026-07-01T12:00:00Z") -> Measured:
    return Measured(seconds, seconds / 2, seconds * 2, 20, "context", measured_at=at)


FOUR = {
    ProfileKey(RELU, H200, TORCH): measured(2e-6),
    ProfileKey(LINEAR, H200, TORCH): measured(1e-3, "2026-07-03T12:00:00Z"),
    ProfileKey(LINEAR, H200, OLD): measured(2e-3, "2025-01-01T00:00:00Z"),
    ProfileKey(RELU, XEON, TORCH): measured(5e-6),
}
"""Two ops, two devices, two libraries."""


def store_of_four(path: Path) -> Path:
    with ProfileStore(path) as store:
        store.put(FOUR)
    return path


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
keys = st.builds(ProfileKey, texts, texts, texts)
measurements = st.builds(
    lambda times, *rest: Measured(times[1], times[0], times[2], *rest),
    st.lists(st.floats(0, 1e6), min_size=3, max_size=3).map(sorted),
    st.integers(1, 10**6),
    st.sampled_from(["context", "isolated", "regressed", "run"]),
    st.floats(0, 1e15),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='seconds')}Z"),
    *[st.floats(0, 1e15)] * 3,
    st.sampled_from(["", *DTYPES]),
    st.floats(0, 1e15),
)
some_profiles = st.dictionaries(keys, measurements, max_size=20)
