"""Time per input of a pipeline: the loads of its devices (Tarnawski et al. 2020, §5, App. C).

A *stage* is a device, or the devices that run replicas of the same ops. Per input and stage, in
the forward and the backward pass apart:

- `compute`: its ops' times;
- `outgoing`: each tensor that an op of another stage reads. Staging ``host``: written to host
  memory once; ``direct``: sent once to each other stage that reads it;
- `incoming`: each tensor that comes from another stage: read once.

What goes between two stages directly takes the mean over their pairs of devices. An outgoing
tensor belongs to its producer's pass, an incoming one to the forward pass if any forward op of
the stage reads it. The replicas of a stage take turns, so each has the stage's seconds divided by
their number r per input, and in training ``(r − 1) / r · weights · seconds per byte`` besides,
to keep their weights equal (App. C.2): on the slowest link among them, or through host memory.

Where shares may differ (option `shares`), replica d takes the part w_d of the inputs and has w_d of
what its stage's ops take on d itself. A transfer goes from replica a to b for w_a · v_b of the
inputs, so the mean over pairs is weighted by that, and w_d of it falls to d, as of what a stage
sends through host memory. The gradients of r replicas are as large whoever saw how many inputs, so
keeping weights equal takes what it did.

A device's load puts these together: added up (``sum``), or the largest of computing and of
transfers, in and out together (``overlap``) or apart (``duplex``). Weight synchronisation is
added under ``sum`` and one more candidate for the largest otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Ints
from placewright.options import Options
from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Placement
from placewright.problem import Problem


def loads(problem: Problem, placement: Placement) -> Loads:
    """The loads of a placement and the time per input.

    >>> loads(problem, Placement(np.zeros(2, int))).compute.shape    # doctest: +SKIP
    (2, 3)
    """
    times = problem.op_time[np.arange(problem.op_count), placement.device]
    return _Sending(problem, placement).loads(times)


def sampled_values(problem: Problem, placement: Placement, op_seconds: Iterable[Floats]) -> Floats:
    """`[sample]` the time per input, were ops to take such seconds.

    A sample is ``[op]``, the seconds of every op where it is placed; of unequal replicas the others
    are as much slower or faster as the first is. Transfers take what the problem says, and are
    added up once.
    """
    sending = _Sending(problem, placement)
    return np.array([sending.loads(seconds).value for seconds in op_seconds])


class _Sending:
    """What the devices of a placement send and receive, whatever their ops take."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem, self.placement = problem, placement
        self.stages = Stages(problem, placement)
        d = problem.device_count
        self.incoming, self.outgoing = np.zeros((2, d)), np.zeros((2, d))
        for tensor in _cut_tensors(problem, placement).tolist():
            for each in transfers_of(self.stages, tensor):
                total = self.outgoing if each.outgoing else self.incoming
                total[each.way, each.stage] += each.seconds
        for total in (self.incoming, self.outgoing):
            self.stages.share_out(total)
        self.sync = self.stages.sync()

    def loads(self, op_seconds: Floats) -> Loads:
        """The loads if the ops take ``op_seconds[op]`` where they are."""
        problem, device = self.problem, self.placement.device
        compute = np.zeros((2, problem.device_count))
        np.add.at(compute, (problem.is_backward.astype(np.int64), device), op_seconds)
        self.stages.share_out(compute)
        if problem.options.shares == "unequal":
            self._share_unequally(compute, op_seconds)
        return _added_up(problem.options, compute, self.incoming, self.outgoing, self.sync)

    def _share_unequally(self, compute: Floats, op_seconds: Floats) -> None:
        """What each replica computes in its share of the inputs: its own times count."""
        problem, placement = self.problem, self.placement
        for stage, shares in zip(placement.replicas, placement.shares, strict=True):
            ops = np.flatnonzero(placement.device == stage[0])
            times = problem.op_time[ops][:, list(stage)]
            first = times[:, 0]
            factor = np.divide(op_seconds[ops], first, out=np.ones(len(ops)), where=first > 0)
            way = problem.is_backward[ops].astype(np.int64)
            for device, share, seconds in zip(stage, shares, times.T, strict=True):
                compute[:, device] = share * np.bincount(way, factor * seconds, 2)


def _cut_tensors(problem: Problem, placement: Placement) -> Ints:
    """Those that some op reads on another stage than where they are made; rising."""
    device = placement.device
    apart = device[problem.edge_producer] != device[problem.consumers]
    return np.unique(problem.edge_tensor[apart])


def pass_loads(problem: Problem, found: Loads) -> Floats:
    """`[pass, device]` busy seconds: the largest of each pass, added up, are the value.

    One pass, but for schedule ``gpipe``, under which forward and backward count apart.
    """
    options = problem.options
    if options.schedule != "gpipe":
        return found.load[None]
    parts = [
        combined(options, found.compute[w], found.incoming[w], found.outgoing[w])
        for w in (FORWARD, BACKWARD)
    ]
    return np.stack([parts[FORWARD], _with_sync(options, parts[BACKWARD], found.sync)])


def _added_up(
    options: Options, compute: Floats, incoming: Floats, outgoing: Floats, sync: Floats
) -> Loads:
    """The loads of devices from their parts, and the time per input."""
    parts = [combined(options, compute[w], incoming[w], outgoing[w]) for w in (FORWARD, BACKWARD)]
    if options.schedule == "gpipe":
        # Weights are synchronised once per input, after its backward pass.
        parts[BACKWARD] = _with_sync(options, parts[BACKWARD], sync)
        load = parts[FORWARD] + parts[BACKWARD]
        value = float(parts[FORWARD].max() + parts[BACKWARD].max())
    else:
        whole = combined(options, compute.sum(0), incoming.sum(0), outgoing.sum(0))
        load = _with_sync(options, whole, sync)
        value = float(load.max())
    return Loads(compute, incoming, outgoing, sync, load, value)


def combined(options: Options, compute: Floats, incoming: Floats, outgoing: Floats) -> Floats:
    """Busy seconds from their parts, under the option `load`."""
    if options.load == "sum":
        return compute + incoming + outgoing
    if options.load == "overlap":
        return np.maximum(compute, incoming + outgoing)
    return np.maximum(compute, np.maximum(incoming, outgoing))


class Stages:
    """Which devices act as one, and what it takes to send between them."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.placement = placement
        self.members: dict[int, tuple[int, ...]] = {
            device: (device,) for device in range(problem.device_count)
        }
        for stage in placement.replicas:
            self.members[stage[0]] = stage
        self.shares: dict[int, tuple[float, ...]] = dict.fromkeys(self.members, (1.0,))
        for stage, shares in zip(placement.replicas, placement.shares, strict=True):
            self.shares[stage[0]] = shares

    def transfer(self, tensor: int, source: int, target: int) -> float:
        """Seconds from one stage to another, directly."""
        problem = self.problem
        ways = np.ix_(self.members[source], self.members[target])
        seconds = (
            problem.link_latency[ways]
            + problem.tensor_bytes[tensor] * problem.link_seconds_per_byte[ways]
        )
        if not self.placement.replica_shares:
            return float(seconds.mean())
        return float(self.shares[source] @ seconds @ self.shares[target])

    def staged(self, tensor: int, stage: int, way: int) -> float:
        """Seconds to host memory (way 0) or from it (way 1)."""
        problem, members = self.problem, list(self.members[stage])
        seconds = (
            problem.host_latency[way, members]
            + problem.tensor_bytes[tensor] * problem.host_seconds_per_byte[way, members]
        )
        if not self.placement.replica_shares:
            return float(seconds.mean())
        return float(self.shares[stage] @ seconds)

    def share_out(self, total: Floats) -> None:
        """Divide each stage's seconds, which stand at its first device, among its replicas."""
        for stage in self.placement.replicas:
            whole = total[:, stage[0]][:, None]
            if self.placement.replica_shares:
                total[:, list(stage)] = whole * np.array(self.shares[stage[0]])
            else:
                total[:, list(stage)] = whole / len(stage)

    def sync(self) -> Floats:
        """`[device]` seconds per input for keeping replicas' weights equal."""
        problem, seconds = self.problem, np.zeros(self.problem.device_count)
        for stage in self.placement.replicas:
            size = problem.op_sync_bytes[self.placement.device == stage[0]].sum()
            share = (len(stage) - 1) / len(stage)
            seconds[list(stage)] = share * size * sync_seconds_per_byte(problem, stage)
        return seconds


def sync_seconds_per_byte(problem: Problem, stage: tuple[int, ...]) -> float:
    """Of the slowest way between two replicas."""
    members = list(stage)
    if problem.staging == "host":
        return float(problem.host_seconds_per_byte[:, members].max())
    return float(problem.link_seconds_per_byte[np.ix_(members, members)].max())


class Transfer(NamedTuple):
    """What one stage gives out, or takes in, of one tensor per input, in a pass (`way`).

    `other` is the stage at the other end, or -1 for host memory.
    """

    tensor: int
    stage: int
    other: int
    way: int
    outgoing: bool
    seconds: float


def transfers_of(stages: Stages, tensor: int) -> Iterator[Transfer]:
    """All that the stages give out and take in of a tensor; nothing where it is read at home."""
    problem = stages.problem
    device: Ints = stages.placement.device
    producer = problem.tensor_producer[tensor]
    source = int(device[producer])
    start, end = problem.consumer_offsets[tensor : tensor + 2]
    readers = problem.consumers[start:end]
    targets = sorted(set(device[readers].tolist()) - {source})
    if not targets:
        return
    out_way = int(problem.is_backward[producer])
    if problem.staging == "host":
        seconds = stages.staged(tensor, source, 0)
        yield Transfer(tensor, source, -1, out_way, True, seconds)
    for target in targets:
        here = readers[device[readers] == target]
        in_way = int(problem.is_backward[here].all())
        if problem.staging == "host":
            seconds = stages.staged(tensor, target, 1)
            yield Transfer(tensor, target, -1, in_way, False, seconds)
        else:
            seconds = stages.transfer(tensor, source, target)
            yield Transfer(tensor, target, source, in_way, False, seconds)
            yield Transfer(tensor, source, target, out_way, True, seconds)


def _with_sync(options: Options, load: Floats, sync: Floats) -> Floats:
    return load + sync if options.load == "sum" else np.maximum(load, sync)
