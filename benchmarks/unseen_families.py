"""Families of networks drawn by seed, on clusters drawn by seed, for `unseen.py`.

Times are in milliseconds and log-normal around those of published workloads; ``slow`` devices take
1.5 to 3 times as long, each op its own. A family draws its widths, depths and bytes too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Floats, Graph, GraphBuilder
from placewright.planning import make_problem
from placewright.problem import Problem

MEGABYTE = 1e6
LOOSE, TIGHT = 2.0, 1.25  # memory of all devices together, in what the ops keep
BATCH = 32
BATCH_SIZES = (8, 16, 24, 32)
OBJECTIVES = ("latency", "throughput", "invocation-latency", "batch-throughput")


@dataclass
class Network:
    """A network under construction."""

    name: str
    rng: np.random.Generator
    milliseconds: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    reads: list[list[int]] = field(default_factory=list)
    output: list[float] = field(default_factory=list)

    def op(
        self, milliseconds: float, reads: Sequence[int] = (), *, kept: float = 0.0, output: float
    ) -> int:
        """An op that reads the outputs of others; bytes that it keeps and that it makes."""
        self.milliseconds.append(milliseconds)
        self.kept.append(kept)
        self.reads.append(list(dict.fromkeys(reads)))
        self.output.append(output)
        return len(self.milliseconds) - 1

    def about(self, middle: float, spread: float = 0.8) -> float:
        """Log-normal around the middle."""
        return float(self.rng.lognormal(math.log(middle), spread))

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def graph(self, trains: bool = False, chunks: int = 1) -> Graph:
        """As a graph; to train, every op has a backward op that takes twice as long.

        In chunks the network is there as often, each op of it with what it keeps on one device.
        """
        builder = GraphBuilder(self.name)
        times = list(self.milliseconds) * chunks
        for chunk in range(chunks):
            tensors = self._forward(builder, chunk, chunks)
        if trains:
            times += self._backward(builder, tensors)
        slower = self.rng.uniform(1.5, 3.0, len(times))
        seconds = {
            "fast": [each * 1e-3 for each in times],
            "slow": [each * 1e-3 * factor for each, factor in zip(times, slower, strict=True)],
        }
        builder.times = dict(seconds)
        for kind, row in seconds.items():
            for size in BATCH_SIZES:  # larger batches take less for each input
                builder.times[f"{kind}@{size}"] = [each * size**0.8 for each in row]
        return builder.build()

    def _forward(self, builder: GraphBuilder, chunk: int, chunks: int) -> list[int]:
        """The network's ops once more; their tensors."""
        tensors: list[int] = []
        for op, reads in enumerate(self.reads):
            name = f"op{op}" if chunks == 1 else f"chunk{chunk}.op{op}"
            number = builder.add_op(
                name,
                "op",
                [tensors[each] for each in reads],
                parameter_bytes=self.kept[op] if chunk == 0 else 0.0,
                colocate=f"op{op}" if chunks > 1 else None,
            )
            tensors.append(builder.add_tensor(number, self.output[op]))
        return tensors

    def _backward(self, builder: GraphBuilder, tensors: Sequence[int]) -> list[float]:
        """Backward ops, from the last to the first; what each takes."""
        count = len(self.milliseconds)
        gradients: list[list[int]] = [[] for _ in range(count)]
        for op in reversed(range(count)):
            inputs = [tensors[each] for each in self.reads[op]] + gradients[op]
            if not gradients[op]:
                inputs.append(tensors[op])
            number = builder.add_op(f"op{op}.grad", "op", inputs, backward=True, twin=op)
            for each in self.reads[op]:
                gradients[each].append(builder.add_tensor(number, self.output[each]))
        return [2 * each for each in reversed(self.milliseconds)]


# -- families --------------------------------------------------------------------------------------


def cnn(net: Network) -> None:
    """Modules of branches that one op joins, as in GoogLeNet and Inception."""
    last = net.op(net.about(0.3), output=net.about(MEGABYTE))
    for _ in range(net.between(6, 20)):
        ends = []
        for _ in range(net.between(2, 6)):
            end = last
            for _ in range(net.between(1, 5)):
                size = net.about(MEGABYTE)
                end = net.op(net.about(0.1), [end], kept=net.about(MEGABYTE), output=size)
            ends.append(end)
        last = net.op(net.about(0.02), ends, output=net.about(2 * MEGABYTE))


def transformer(net: Network, blocks: int | None = None, memory: int | None = None) -> int:
    """Blocks of attention heads and a feed-forward net, around which a residual goes."""
    heads, size = net.between(2, 8), net.about(0.5 * MEGABYTE)
    last = net.op(net.about(0.05), kept=net.about(50 * MEGABYTE), output=size)
    for _ in range(blocks or net.between(3, 12)):
        read = [last] if memory is None else [last, memory]
        found = [
            net.op(net.about(0.1), read, kept=net.about(2 * MEGABYTE), output=size / heads)
            for _ in range(heads)
        ]
        joined = net.op(net.about(0.1), [*found, last], kept=net.about(4 * MEGABYTE), output=size)
        wide = net.op(net.about(0.3), [joined], kept=net.about(16 * MEGABYTE), output=4 * size)
        last = net.op(net.about(0.3), [wide, joined], kept=net.about(16 * MEGABYTE), output=size)
    return net.op(net.about(0.5), [last], kept=net.about(50 * MEGABYTE), output=size)


def encoder_decoder(net: Network) -> None:
    """A transformer whose blocks all read what another one makes."""
    memory = transformer(net, net.between(2, 6))
    transformer(net, net.between(2, 6), memory)


def experts(net: Network) -> None:
    """Blocks in which a router sends to experts of unequal load."""
    size = net.about(0.5 * MEGABYTE)
    last = net.op(net.about(0.05), output=size)
    for _ in range(net.between(3, 8)):
        attention = net.op(net.about(0.2), [last], kept=net.about(8 * MEGABYTE), output=size)
        router = net.op(net.about(0.01), [attention], output=size)
        count = net.between(4, 8)
        found = [
            net.op(net.about(0.2), [router], kept=net.about(20 * MEGABYTE), output=size / count)
            for _ in range(count)
        ]
        last = net.op(net.about(0.02), [*found, attention], output=size)


def translation(net: Network) -> None:
    """Recurrent layers with states that nobody reads and ops that take no time."""

    def layer(reads: Sequence[int]) -> int:
        size = float(net.rng.choice([1e4, 2e4, 4e4]))
        dropped = net.op(0.0, reads, output=size) if net.rng.random() < 0.6 else None
        inputs = reads if dropped is None else [dropped]
        main = net.op(net.about(4.0, 0.3), inputs, kept=net.about(40 * MEGABYTE), output=size)
        for _ in range(net.between(1, 2)):
            net.op(0.0, [main], kept=0.5 * MEGABYTE, output=size)
        return net.op(0.0, [main], output=size)

    embedded = net.op(0.2, kept=130 * MEGABYTE, output=2e4)
    encoded = net.op(0.0, [layer([embedded]), layer([embedded])], output=4e4)
    for _ in range(net.between(2, 6)):
        encoded = layer([encoded])
    decoded = layer([net.op(0.2, kept=130 * MEGABYTE, output=2e4)])
    attention = net.op(net.about(1.5, 0.3), [encoded, decoded], output=2e4)
    for _ in range(net.between(3, 7)):
        decoded = layer([decoded, attention])
    net.op(net.about(6.0, 0.3), [decoded], kept=130 * MEGABYTE, output=1e5)


def wired(net: Network) -> None:
    """Modules wired at random, one after another."""
    last = net.op(net.about(0.1), output=net.about(MEGABYTE))
    for _ in range(net.between(3, 10)):
        inside: list[int] = []
        for _ in range(net.between(6, 24)):
            near = [each for each in inside if net.rng.random() < 0.25]
            size = net.about(MEGABYTE)
            inside.append(net.op(net.about(0.1), near or [last], kept=size, output=size))
        read = {each for op in inside for each in net.reads[op]}
        ends = [op for op in inside if op not in read]
        last = net.op(net.about(0.05), ends, output=net.about(MEGABYTE))


def unet(net: Network) -> None:
    """Down and up again, with a tensor across at each level."""
    last, across = net.op(net.about(0.1), output=net.about(4 * MEGABYTE)), []
    depth = net.between(3, 6)
    for level in range(2 * depth):
        reads = [last]
        if level >= depth:
            reads.append(across.pop())
        for _ in range(net.between(2, 4)):
            size = net.about(4 * MEGABYTE / (1 + min(level, 2 * depth - level)))
            last = net.op(net.about(0.2), reads, kept=net.about(4 * MEGABYTE), output=size)
            reads = [last]
        if level < depth:
            across.append(last)


FAMILIES: Mapping[str, Callable[[Network], object]] = {
    "cnn": cnn, "transformer": transformer, "translation": translation,
    "encoder-decoder": encoder_decoder, "experts": experts, "wired": wired, "unet": unet,
}  # fmt: skip


# -- instances -------------------------------------------------------------------------------------


def instance(seed: int, chunks: int = 1, host: float = math.inf) -> tuple[str, Problem]:
    """The instance of a seed: its name, which says what was drawn, and its problem.

    For invocation latency tensors go through host memory, each device reading and writing `host`
    gigabytes a second, with 10 µs before each tensor; in no time if that is infinite.

    Seeds go through families, objectives, equal and unequal devices, and loose and tight memory
    in turn; one in three is trained, where the objective knows training. Chunks of a batch, each
    through the whole network, are for latency, and are not trained.
    """
    rng = np.random.default_rng(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    objective = OBJECTIVES[seed // len(FAMILIES) % len(OBJECTIVES)] if chunks == 1 else "latency"
    equal, tight = bool(rng.integers(2)), bool(rng.integers(2))
    trains = objective != "batch-throughput" and rng.random() < 1 / 3 and chunks == 1
    net = Network(f"{family}-{seed}", rng)
    FAMILIES[family](net)
    devices = int(rng.integers(2, 9))
    cluster = _cluster(rng, devices, equal)
    options: dict[str, str | int] = {"objective": objective}
    if objective == "latency":
        options |= {"contention": str(rng.choice(["none", "port", "link"]))}
        options |= {"transfer_unit": str(rng.choice(["tensor", "edge"]))}
    if objective == "batch-throughput":
        options |= {"batch": BATCH}
    said = [
        family,
        objective,
        f"{devices} {'equal' if equal else 'unequal'}",
        "tight" if tight else "loose",
        *(["training"] if trains else []),
        *([f"{chunks} chunks"] if chunks > 1 else []),
    ]
    problem = make_problem(net.graph(trains, chunks), cluster, options)[0]
    if objective == "invocation-latency" and math.isfinite(host):
        said.append(f"{host:g} GB/s")
        latency, pace = np.full((2, devices), 1e-5), np.full((2, devices), 1e-9 / host)
        problem = replace(problem, host_latency=latency, host_seconds_per_byte=pace)
    shares = np.ones(devices) if equal else rng.uniform(0.5, 1.5, devices)
    return f"{seed}: {', '.join(said)}", _with_memory(problem, shares, TIGHT if tight else LOOSE)


def _with_memory(problem: Problem, shares: Floats, factor: float) -> Problem:
    """Devices with so many times what the ops keep, of which the largest fits on any."""
    room = factor * problem.op_memory.sum() * shares / shares.sum()
    return problem.with_device_memory(np.maximum(room, 1.01 * problem.unit_memory.max()))


def _cluster(rng: np.random.Generator, count: int, equal: bool) -> Cluster:
    """Devices of one or two kinds, each linked to each."""
    kinds = ["fast" if equal or each % 2 == 0 else "slow" for each in range(count)]
    devices = tuple(
        Device(f"d{each}", kind, memory=math.inf, batch_sizes=BATCH_SIZES)
        for each, kind in enumerate(kinds)
    )
    speed = float(rng.choice([1e9, 5e9, 2e10]))
    links = tuple(
        Link(f"d{one}", f"d{two}", bandwidth=speed, latency=1e-5)
        for one, two in combinations(range(count), 2)
    )
    return Cluster(f"{count} devices", devices, links)
