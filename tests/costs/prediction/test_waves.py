"""GPUs with more multiprocessors are faster only for ops that have blocks for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.cluster import Cluster, Device
from placewright.costs.catalog import complete, kinds
from placewright.costs.prediction.check import check
from placewright.costs.prediction.predict import predicted_seconds
from placewright.costs.profiles.entry import DeviceFigures, Measured, ProfileKey
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ClusterError, ProfileError
from placewright.formats.clusters import cluster_document, read_cluster
from placewright.graph import GraphBuilder
from tests.costs.prediction.stores import TORCH

BLOCK = 128 * 128  # outputs
EACH = 5e11  # FLOP/s of a multiprocessor
BYTES = 1e10  # B/s of memory for each
OVERHEAD = 5e-6
GPUS = {"Small GPU": 20, "Middle GPU": 46, "Large GPU": 132}


def waves_seconds(multiprocessors: int, m: int, n: int, k: int) -> float:
    """A matrix product in whole waves of blocks, a block per multiprocessor: no formula of ours."""
    blocks = math.ceil(m * n / BLOCK)
    computing = math.ceil(blocks / multiprocessors) * 2.0 * BLOCK * k / EACH
    moving = 4.0 * (m * k + n * k + m * n) / (BYTES * multiprocessors)
    return OVERHEAD + max(computing, moving)


def gpu(name: str, count: int, *, known: bool) -> DeviceFigures:
    return DeviceFigures({"fp32": EACH * count}, BYTES * count, False, count if known else None)


def shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    drawn = 2 ** rng.uniform(6, 12, (count, 3))
    return [(int(m), int(n), int(k)) for m, n, k in drawn]


def signature(m: int, n: int, k: int) -> str:
    return f"aten.linear.default(float32[{m},{k}], float32[{n},{k}])"


def store_of(path, *, known: bool):
    with ProfileStore(path) as store:
        for name, count in GPUS.items():
            store.put_figures(name, gpu(name, count, known=known))
            found = {}
            for m, n, k in shapes(60, seed=0):
                seconds = waves_seconds(count, m, n, k)
                found[ProfileKey(signature(m, n, k), name, TORCH)] = Measured(
                    seconds, seconds, seconds, 20, "context", flops=2.0 * m * n * k,
                    bytes_read=4.0 * (m * k + n * k), bytes_written=4.0 * m * n, dtype="fp32",
                )  # fmt: skip
            store.put(found)
    return path


def errors(path) -> dict[str, float]:
    with ProfileStore(path) as store:
        return {each.name: each.median for each in check(store) if each.left_out == "device"}


def test_a_gpu_left_out_is_predicted_better_where_multiprocessors_are_known(tmp_path):
    known = errors(store_of(tmp_path / "known.sqlite", known=True))
    unknown = errors(store_of(tmp_path / "unknown.sqlite", known=False))
    assert set(known) == set(unknown) == set(GPUS)
    for name in GPUS:
        assert known[name] < 0.8 * unknown[name], (name, known, unknown)


def test_an_op_of_one_block_is_no_faster_on_a_larger_gpu(tmp_path):
    path = store_of(tmp_path / "known.sqlite", known=True)
    builder = GraphBuilder("one")
    m = n = 128
    k = 4096
    builder.add_op(
        "op", "linear", [], flops=2.0 * m * n * k, bytes_read=4.0 * (m * k + n * k),
        bytes_written=4.0 * m * n, signature=signature(m, n, k),
    )  # fmt: skip
    builder.attributes["framework"] = TORCH
    devices = [
        Device(f"gpu{count}", f"GPU of {count}", memory=1e10, peak_flops={"fp32": EACH * count},
               memory_bandwidth=BYTES * count, multiprocessors=count)
        for count in (40, 160)
    ]  # fmt: skip
    found = predicted_seconds(builder.build(), devices, path)
    small, large = (found[device.name].seconds[0] for device in devices)
    assert large > 0.8 * small
    assert small == pytest.approx(waves_seconds(40, m, n, k), rel=0.35)


def test_multiprocessors_come_from_the_catalog_and_go_through_files(tmp_path):
    cluster = complete(
        Cluster("two", (Device("a", "A100 40GB"), Device("b", "M1", memory=8e9)), ())
    )
    assert [device.multiprocessors for device in cluster.devices] == [108, None]
    mine = Cluster("one", (Device("a", "A100 40GB", multiprocessors=98),), ())
    assert read_cluster(cluster_document(mine), "mine.yaml") == mine
    assert complete(mine).devices[0].multiprocessors == 98
    figures = DeviceFigures({"fp32": 1.0}, 1.0, False, 98)
    assert DeviceFigures.from_json(figures.to_json()) == figures
    older = '{"is_cpu": false, "memory_bandwidth": 1.0, "peak_flops": {"fp32": 1.0}}'
    assert DeviceFigures.from_json(older).multiprocessors is None


def test_no_multiprocessors_are_refused():
    with pytest.raises(ClusterError, match="multiprocessors is 0"):
        Device("a", "mine", multiprocessors=0)
    with pytest.raises(ProfileError, match="0 multiprocessors"):
        DeviceFigures({"fp32": 1.0}, 1.0, False, 0)


@pytest.mark.parametrize("name", [name for name, kind in kinds().items() if kind.multiprocessors])
def test_multiprocessors_agree_with_the_peak(name):
    """FLOPs of a multiprocessor and clock: 64 or 128 lanes of fp32, at 0.9 to 3 GHz."""
    kind = kinds()[name]
    each = kind.peak_flops["fp32"] / kind.multiprocessors
    assert 2 * 64 * 0.9e9 < each < 2 * 128 * 3e9
