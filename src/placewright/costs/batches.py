"""Batches of inputs: which sizes a device takes, and how long an op needs for them."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device
from placewright.costs.catalog import peak_flops
from placewright.errors import ClusterError
from placewright.graph import Floats, Graph, Ints

PARTS = 4


def default_sizes(batch: int) -> tuple[int, ...]:
    """Quarters of the batch (DiviML §V-C), rounded, and what each leaves of it.

    >>> default_sizes(16), default_sizes(6)
    ((4, 8, 12, 16), (1, 2, 3, 4, 5, 6))
    """
    quarters = {batch * part // PARTS for part in range(1, PARTS + 1)}
    return tuple(sorted((quarters | {batch - size for size in quarters}) - {0}))


def batch_times(graph: Graph, cluster: Cluster, batch: int) -> tuple[Ints, Floats]:
    """`batch_sizes[size]` and `batch_time[op, device, size]` of a `Problem` with `batch` inputs.

    Sizes above `batch` are of no use and left out. ClusterError if a device takes no other.
    """
    allowed = [_sizes(device, batch) for device in cluster.devices]
    sizes = sorted(set().union(*allowed))
    times = np.full((graph.op_count, cluster.device_count, len(sizes)), np.inf)
    for d, device in enumerate(cluster.devices):
        for size in allowed[d]:
            times[:, d, sizes.index(size)] = op_times_of_batch(graph, device, size)
    return np.array(sizes, dtype=np.int32), times


def op_times_of_batch(graph: Graph, device: Device, size: int) -> Floats:
    """`[op]` seconds for `size` inputs at once: measured if the graph has them, else roofline.

    Measured times of batches stand in ``graph.times["KIND@SIZE"]``. By the roofline model work
    and activations grow with the inputs, while parameters are read, and the op launched, once.
    """
    measured = graph.times.get(device.kind if size == 1 else f"{device.kind}@{size}")
    if measured is not None:
        return measured
    if device.kind in graph.times:
        raise ClusterError(
            f"device '{device.name}' of kind '{device.kind}': the graph has measured times for "
            f"this kind, but none for batches of {size}; add times named '{device.kind}@{size}', "
            "or give the device other batch_sizes"
        )
    weights = np.minimum(graph.op_parameter_bytes, graph.op_bytes_read)  # a lookup reads some rows
    activations = graph.op_bytes_read - weights + graph.op_bytes_written
    moved = np.minimum(graph.op_parameter_bytes, size * weights) + size * activations
    return roofline(graph, device, size * graph.op_flops, moved)


def roofline(graph: Graph, device: Device, flops: Floats, moved: Floats) -> Floats:
    """`[op]` seconds (Williams et al. 2009): the larger of computing and moving, each at the share
    of the peak that real ops reach, plus the launch overhead; nothing for ops that do neither.
    """
    if not device.peak_flops or not device.memory_bandwidth:
        kinds = f" (it has {', '.join(graph.times)})" if graph.times else ""
        raise ClusterError(
            f"device '{device.name}' of kind '{device.kind}': the graph has no measured times "
            f"for this kind{kinds} and the device has no peak_flops and "
            "memory_bandwidth; give them, or name a kind of the catalog"
        )
    peaks = {dtype: peak_flops(device, dtype) for dtype in set(graph.op_dtypes)}
    peak = np.array([peaks[dtype] for dtype in graph.op_dtypes])
    computing = flops / (peak * (device.compute_efficiency or 1.0))
    moving = moved / (device.memory_bandwidth * (device.memory_efficiency or 1.0))
    works = (flops > 0) | (moved > 0)
    return np.where(works, np.maximum(computing, moving) + (device.launch_overhead or 0.0), 0.0)


def _sizes(device: Device, batch: int) -> tuple[int, ...]:
    sizes = device.batch_sizes or default_sizes(batch)
    fitting = tuple(size for size in sizes if size <= batch)
    if not fitting:
        raise ClusterError(
            f"device '{device.name}' takes batches of {sizes[0]} or more and there are {batch} "
            "inputs; give it smaller batch_sizes"
        )
    return fitting
