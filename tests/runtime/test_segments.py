"""Tensors through memory that two ranks share are those that were sent, call after call."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

torch = pytest.importorskip("torch")

from placewright.runtime.ranks import segment_channel, segments  # noqa: E402
from placewright.runtime.ranks.channels import ChannelTimeoutError  # noqa: E402
from placewright.runtime.ranks.segment_channel import SegmentConnection  # noqa: E402
from placewright.runtime.stages.code import Code, Send, Transfer  # noqa: E402
from placewright.runtime.stages.cutting import Stage  # noqa: E402
from placewright.runtime.stages.layout import empty, transfer_of, unpack  # noqa: E402

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not segments.are_there(), reason="this system has no such memory"),
]


class FakeGloo:
    """What the segments had no room for, by tag, between all ranks of a test."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.sent: dict[int, torch.Tensor] = {}
        self.changed = threading.Condition()

    def post(self, transfer: Transfer) -> Transfer:
        return transfer

    def wait(self, posted: Transfer) -> torch.Tensor:
        if not posted.elements:
            return unpack(posted, empty(posted))
        with self.changed:
            assert self.changed.wait_for(lambda: posted.tag in self.sent, 10)
            flat = self.sent.pop(posted.tag)
        return unpack(posted, flat)

    def send_flat(self, transfer: Transfer, flat: torch.Tensor) -> None:
        with self.changed:
            self.sent[transfer.tag] = flat.clone()
            self.changed.notify_all()

    def finish(self) -> None:
        pass


@pytest.fixture
def gloo(monkeypatch: pytest.MonkeyPatch) -> FakeGloo:
    found = FakeGloo()
    monkeypatch.setattr(segment_channel, "GlooChannel", lambda timeout: found)
    return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def tensors(draw: random.Random) -> list[torch.Tensor]:
    """Of all layouts that travel: dense, transposed, repeated, empty, of a type of one byte."""
    made = []
    for _ in range(draw.randrange(1, 12)):
        size = draw.randrange(0, 40)
        value = torch.randn(size, 3)
        kinds = (value, value.T, value[:1].expand(-1, 3), value > 0, value.double(), value[:, 0])
        made.append(draw.choice(kinds))
    return made


def between(values: list[torch.Tensor], source: int, target: int) -> list[Transfer]:
    return [
        transfer_of(value, f"v{tag}", "user", source, target, 2 * tag + source)
        for tag, value in enumerate(values)
    ]


def stage(rank: int, transfers: list[Transfer]) -> Stage:
    return Stage(rank, Code((), tuple(map(Send, transfers)), []), {}, (), (), (), (), ())


@pytest.mark.parametrize("seed", range(30))
def test_both_ranks_get_what_the_other_sends(
    seed: int, gloo: FakeGloo, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(segments, "MOST_BYTES", 600)  # some go over gloo
    torch.manual_seed(seed)
    values = [tensors(draw), tensors(draw)]
    transfers = [between(values[0], 0, 1), between(values[1], 1, 0)]
    sizes = segments.sizes_of([[stage(rank, transfers[rank]) for rank in (0, 1)]])
    built = segments.built(sizes, stack)
    ends = [SegmentConnection(rank, segments.segments_of(built, rank), 10.0) for rank in (0, 1)]
    together, calls = threading.Barrier(2), 3
    got: list[list[list[torch.Tensor]]] = [[], []]

    def rank(own: int) -> None:
        order = random.Random(seed)
        for call in range(calls):
            together.wait(10)
            channel = ends[own].channel()
            posted = [channel.post(each) for each in transfers[1 - own]]
            for transfer, value in zip(transfers[own], values[own], strict=True):
                channel.send(transfer, value + call if value.dtype != torch.bool else value)
            came: dict[int, torch.Tensor] = {}
            for at in order.sample(range(len(posted)), len(posted)):
                came[at] = channel.wait(posted[at])
            channel.finish()
            got[own].append([came[at] for at in range(len(posted))])

    other = threading.Thread(target=rank, args=(1,), daemon=True)
    other.start()
    rank(0)
    other.join(10)
    assert not other.is_alive()
    for own in (0, 1):
        for call in range(calls):
            triples = zip(values[1 - own], transfers[1 - own], got[own][call], strict=True)
            for value, transfer, found in triples:
                assert torch.equal(found, value + call if value.dtype != torch.bool else value)
                assert (tuple(found.shape), found.stride()) == (transfer.shape, transfer.stride)
    assert not gloo.sent


def test_a_tensor_that_is_held_is_not_written_to_by_the_next_call(
    gloo: FakeGloo, stack: ExitStack
) -> None:
    value = torch.zeros(4)
    (transfer,) = between([value], 0, 1)
    built = segments.built({(0, 1): 64}, stack)
    sender, receiver = (SegmentConnection(rank, built, 1.0) for rank in (0, 1))
    found = []
    for call in range(2):
        outgoing, incoming = sender.channel(), receiver.channel()
        posted = incoming.post(transfer)
        outgoing.send(transfer, value + call)
        found.append(incoming.wait(posted))
    assert [each.tolist() for each in found] == [[0] * 4, [1] * 4]


def test_what_does_not_come_in_time_is_named(gloo: FakeGloo, stack: ExitStack) -> None:
    (transfer,) = between([torch.zeros(4)], 0, 1)
    channel = SegmentConnection(1, segments.built({(0, 1): 64}, stack), 0.05).channel()
    posted = channel.post(transfer)
    with pytest.raises(ChannelTimeoutError) as caught:
        channel.wait(posted)
    assert str(caught.value) == "has waited for the output of op 'v0' from rank 0 for 0.05 s"
    assert channel.waited == 0


def test_a_segment_has_room_for_the_largest_of_several_placements() -> None:
    small, large = torch.zeros(3), torch.zeros(100)
    cuts = [
        [stage(0, between(values, 0, 1)), stage(1, between([small], 1, 0))]
        for values in ([small, small], [large])
    ]
    assert segments.sizes_of(cuts) == {(0, 1): 448, (1, 0): 64}
    assert segments.sizes_of(cuts, [None, 0]) == {}


def test_nothing_is_open_afterwards() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with ExitStack() as stack:
        built = segments.built({(0, 1): 64, (1, 2): 1 << 20, (2, 0): 0}, stack)
        assert [(segment.source, segment.target) for segment in built] == [(0, 1), (1, 2)]
        assert len(set(os.listdir("/proc/self/fd"))) == len(before) + 4  # noqa: PTH208
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_system_without_such_memory_has_no_segments(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.delattr(os, "eventfd")
    assert segments.built({(0, 1): 64}, stack) == []
