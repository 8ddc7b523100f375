"""Randomly wired networks (Xie et al. 2019) as the DiviML paper builds them (§V).

A network is a stem, a chain of modules, and a classifier. A module is a random graph whose nodes
are units (sum of the inputs, relu, separable convolution, batch norm), between `channels` input
ops and as many output ops; output i of a module feeds input i of the next by one tensor, its only
consumer, so with one channel modules hang together by a bridge. An input op is a unit; an output
op averages what it collects.

The random graph is undirected first, then every edge points from the lower to the higher node:

- ``er``: Erdős–Rényi, each pair with probability `p` (0.2);
- ``ws``: Watts–Strogatz, a ring with `k` neighbours each, rewired with probability `p` (0.75);
- ``ba``: Barabási–Albert, each new node tied to `m` old ones, preferably to those with many ties.

How a module hangs on its channels (`dependency`, Fig. 2 (c) and (e)): input op 0 feeds every node
without predecessors and output op 0 collects every node without successors under ``sdep``, so that
all paths stem from one input and converge to one output; under ``wdep`` each of these nodes draws
one of the inputs (outputs) at random. Every input and output op besides gets nodes at random until
it has `LINKS_PER_CHANNEL`. A graph that falls into pieces is kept: the channels hold it together.

The same spec gives the same graph everywhere: the draws use only `random.Random.random`, whose
sequence for a seed Python guarantees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from placewright.graph import Floats, Graph
from placewright.importers.zoo.blocks import Tensor, Writer, model_input, require
from placewright.importers.zoo.diviml_times import diviml_times
from placewright.importers.zoo.options import Hyper, choice, fraction, number

LINKS_PER_CHANNEL = 2
_PROBABILITY = {"er": 0.2, "ws": 0.75}


@dataclass(frozen=True, kw_only=True)
class RandomWiring(Hyper):
    """`ops` units a module, besides its inputs and outputs; `width` channels of each image.

    `p` is 0.2 (``er``) or 0.75 (``ws``) unless given. `image` is the input's side in pixels; the
    modules work at a quarter of it. Granularity ``layer`` makes a unit one op, ``op`` four or five.
    With `times` ``diviml`` the ops have times on the devices of that cluster, drawn such that they
    add up as in DiviML's tables (`diviml_times`); with ``roofline`` the cost model makes them.
    """

    generator: str = choice("er", "er", "ws", "ba")
    ops: int = number(32, minimum=2)
    p: float | None = fraction(None)
    k: int = number(4, minimum=2)
    m: int = number(5)
    modules: int = number(10)
    channels: int = number(1)
    dependency: str = choice("sdep", "sdep", "wdep")
    seed: int = number(0, minimum=0)
    width: int = number(78)
    image: int = number(224, minimum=4)
    classes: int = number(1000)
    granularity: str = choice("layer", "layer", "op")
    times: str = choice("roofline", "roofline", "diviml")
    dtype: str = choice("fp32", "fp32", "fp64", "tf32", "bf16", "fp16", "fp8", "int8", "int4")


def random_wiring_times(graph: Graph, shape: RandomWiring) -> dict[str, Floats]:
    """Kind of device → `[op]` seconds; empty if the cost model is to make them.

    The draws are others than the wiring's, so that both options have the same graph.
    """
    if shape.times == "roofline":
        return {}
    return diviml_times(graph, shape.seed + 2**31, shape.batch)


def write_random_wiring(w: Writer, shape: RandomWiring) -> None:
    """Stem, modules, and a classifier on the average of the last module's outputs."""
    _check(w, shape)
    draw = random.Random(shape.seed)
    stem = _stem(w, shape)
    channels = [stem] * shape.channels
    for module in range(shape.modules):
        with w.scope(f"modules.{module}"):
            channels = _module(w, channels, shape, draw)
    with w.scope("head"):
        x = _average(w, "average", channels) if len(channels) > 1 else channels[0]
        pooled = (x.shape[0], x.shape[1])
        x = w.op("avgpool", "avgpool", (x,), pooled, flops=x.elements)
        w.linear("classifier", x, shape.classes, bias="inside")


def _check(w: Writer, shape: RandomWiring) -> None:
    name = w.builder.name
    require(
        shape.channels <= shape.ops,
        name,
        f"channels ({shape.channels}) must be at most ops ({shape.ops})",
    )
    if shape.generator == "ws":
        require(
            shape.k % 2 == 0 and shape.k < shape.ops,
            name,
            f"k ({shape.k}) must be even and less than ops ({shape.ops})",
        )
    if shape.generator == "ba":
        require(shape.p is None, name, "p belongs to generators er and ws; leave it out for ba")
        require(shape.m < shape.ops, name, f"m ({shape.m}) must be less than ops ({shape.ops})")


# -- random graphs -----------------------------------------------------------------------------

Edges = set[tuple[int, int]]


def random_edges(shape: RandomWiring, draw: random.Random) -> Edges:
    """Edges (low, high) of one module's random graph."""
    probability = _PROBABILITY.get(shape.generator, 0.0) if shape.p is None else shape.p
    if shape.generator == "er":
        return erdos_renyi(shape.ops, probability, draw)
    if shape.generator == "ws":
        return watts_strogatz(shape.ops, shape.k, probability, draw)
    return barabasi_albert(shape.ops, shape.m, draw)


def erdos_renyi(nodes: int, probability: float, draw: random.Random) -> Edges:
    """Each of the pairs independently with `probability`."""
    return {
        (low, high)
        for low in range(nodes)
        for high in range(low + 1, nodes)
        if draw.random() < probability
    }


def watts_strogatz(nodes: int, neighbours: int, probability: float, draw: random.Random) -> Edges:
    """A ring; then, clockwise, each edge's far end moves elsewhere with `probability`."""
    edges: Edges = set()
    for step in range(1, neighbours // 2 + 1):
        edges |= {_edge(node, (node + step) % nodes) for node in range(nodes)}
    for step in range(1, neighbours // 2 + 1):
        for node in range(nodes):
            old = _edge(node, (node + step) % nodes)
            if draw.random() < probability and old in edges:
                free = [
                    other
                    for other in range(nodes)
                    if other != node and _edge(node, other) not in edges
                ]
                if free:
                    edges.remove(old)
                    edges.add(_edge(node, _pick(free, draw)))
    return edges


def barabasi_albert(nodes: int, ties: int, draw: random.Random) -> Edges:
    """`ties` nodes to begin with; each later one ties itself to as many, drawn by degree."""
    edges: Edges = set()
    ends: list[int] = []  # every node once per tie: a uniform draw from it is one by degree
    chosen = list(range(ties))
    for node in range(ties, nodes):
        edges |= {(old, node) for old in chosen}
        ends += [*chosen, *[node] * ties]
        chosen = []
        while len(chosen) < ties:
            old = _pick(ends, draw)
            if old not in chosen:
                chosen.append(old)
    return edges


def _edge(one: int, other: int) -> tuple[int, int]:
    return (min(one, other), max(one, other))


def _pick(values: list[int], draw: random.Random) -> int:
    return values[int(draw.random() * len(values))]


# -- a module ----------------------------------------------------------------------------------


def _module(
    w: Writer, channels: list[Tensor], shape: RandomWiring, draw: random.Random
) -> list[Tensor]:
    edges = random_edges(shape, draw)
    heads, tails = {high for _, high in edges}, {low for low, _ in edges}
    sources = [node for node in range(shape.ops) if node not in heads]
    sinks = [node for node in range(shape.ops) if node not in tails]
    fed = _share(sources, shape, draw)
    collected = _share(sinks, shape, draw)

    inputs = [_unit(w, f"input.{i}", [each], shape) for i, each in enumerate(channels)]
    units: list[Tensor] = []
    for node in range(shape.ops):
        reads = [inputs[i] for i, nodes in enumerate(fed) if node in nodes]
        reads += [units[low] for low in range(node) if (low, node) in edges]
        units.append(_unit(w, f"unit.{node}", reads, shape))
    return [
        _average(w, f"output.{i}", [units[node] for node in sorted(nodes)])
        for i, nodes in enumerate(collected)
    ]


def _share(ends: list[int], shape: RandomWiring, draw: random.Random) -> list[set[int]]:
    """Which nodes each channel feeds (collects), where `ends` are those it must not miss."""
    shares: list[set[int]] = [set() for _ in range(shape.channels)]
    for node in ends:
        channel = 0
        if shape.dependency == "wdep":
            channel = _pick(list(range(shape.channels)), draw)
        shares[channel].add(node)
    everyone = list(range(shape.ops))
    for share in shares if shape.channels > 1 else ():
        while len(share) < min(LINKS_PER_CHANNEL, shape.ops):
            share.add(_pick(everyone, draw))
    return shares


# -- ops ---------------------------------------------------------------------------------------


def _stem(w: Writer, shape: RandomWiring) -> Tensor:
    """Two strided convolutions: to half the width, then all of it."""
    x = model_input(shape.batch, 3, shape.image, shape.image)

    def half(x: Tensor, name: str, channels: int) -> Tensor:
        with w.scope(name):
            x = w.conv("conv", x, channels, (3, 3), stride=2, padding=(1, 1))
            return w.elementwise("relu", "relu", (w.batch_norm("bn", x),))

    if shape.granularity == "op":
        return half(half(x, "stem.0", max(1, shape.width // 2)), "stem.1", shape.width)
    return w.whole(
        "stem", "stem",
        lambda: half(half(x, "0", max(1, shape.width // 2)), "1", shape.width),
    )  # fmt: skip


def _unit(w: Writer, name: str, inputs: list[Tensor], shape: RandomWiring) -> Tensor:
    """Sum of the inputs, relu, separable 3×3 convolution, batch norm."""

    def write() -> Tensor:
        x = w.elementwise("sum", "add", inputs) if len(inputs) > 1 else inputs[0]
        x = w.elementwise("relu", "relu", (x,))
        width = shape.width
        x = w.conv("depthwise", x, width, (3, 3), padding=(1, 1), groups=width)
        return w.batch_norm("bn", w.conv("pointwise", x, width, (1, 1)))

    if shape.granularity == "op":
        with w.scope(name):
            return write()
    return w.whole(name, "unit", write)


def _average(w: Writer, name: str, inputs: list[Tensor]) -> Tensor:
    return w.op(name, "mean", inputs, inputs[0].shape, flops=sum(each.elements for each in inputs))
