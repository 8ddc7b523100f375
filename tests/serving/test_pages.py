"""How many sequences fit, as an engine with a paged cache admits them."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.importers import load
from placewright.planning import plan
from placewright.serving.capacity import cache_capacity
from placewright.verify import verify
from tests.naive.pages import admitted

HIDDEN, FEEDFORWARD, HEADS, VOCABULARY, LAYERS = 64, 96, 4, 50, 6
FLOAT = 2  # bytes
LAYER = (FEEDFORWARD * 3 * HIDDEN + 2 * HIDDEN) * FLOAT  # and attention, by the heads of its cache
PAGE = 16


def devices(memory: list[int]) -> Cluster:
    names = [f"d{number}" for number in range(len(memory))]
    made = tuple(
        Device(name, "RTX 3090", "host", memory=float(each))
        for name, each in zip(names, memory, strict=True)
    )
    pairs = [(a, b) for a in names for b in names if a < b]
    return Cluster("some", made, tuple(Link(a, b, 1e9) for a, b in pairs))


def pins(source: str, layers: list[int]) -> dict[str, str]:
    """Every op on the device of its layer; what comes before and after on the first and last."""
    stage = [device for device, count in enumerate(layers) for _ in range(count)]

    def device(op: str) -> int:
        part = op.split(".")
        return stage[int(part[1])] if part[0] == "blocks" else stage[0 if op == "embedding" else -1]

    return {op: f"d{device(op)}" for op in load(source).graph.op_names}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=3).filter(lambda each: sum(each) == LAYERS),
    st.lists(st.integers(0, 3_000_000), min_size=3, max_size=3),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 40),
)
@example([2, 4], [0, 0, 0], 1, 1)  # devices that are full to the byte
def test_as_many_sequences_fit_as_a_paged_cache_admits(
    layers: list[int], spare: list[int], kv_heads: int, pages: int
) -> None:
    context, head = pages * PAGE, HIDDEN // HEADS
    token = 2 * kv_heads * head * FLOAT
    attention = (2 * HIDDEN * HIDDEN + 2 * HIDDEN * kv_heads * head) * FLOAT
    weights = [count * (LAYER + attention) for count in layers]
    weights[0] += VOCABULARY * HIDDEN * FLOAT
    weights[-1] += (VOCABULARY + 1) * HIDDEN * FLOAT
    memory = [
        weight + count * context * token + more
        for weight, count, more in zip(weights, layers, spare, strict=False)
    ]
    source = (
        f"zoo:llama-7b?layers={LAYERS}&hidden={HIDDEN}&feedforward={FEEDFORWARD}&heads={HEADS}"
        f"&kv_heads={kv_heads}&vocabulary={VOCABULARY}&phase=decode&context={context}"
    )
    found = plan(source, devices(memory), pinned=pins(source, layers), planner="heft")
    assert verify(found).ok
    capacity = cache_capacity(found)
    assert capacity is not None
    free = [room - weight for room, weight in zip(memory, weights, strict=True)]
    assert capacity.fit == admitted(free, layers, token, context, PAGE)
