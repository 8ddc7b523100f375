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

from collections.abc import Iterable
from functools import reduce

import numpy as np

from placewright.graph import Floats, Ints
from placewright.options import Options
from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.pipeline_steps import hops, in_steps, pipelines_of
from placewright.simulate.transfers import Stages, transfers_of


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
        self.pipelines = [Stages(problem, each) for each in pipelines_of(placement)]
        d = problem.device_count
        self.incoming, self.outgoing, self.sync = np.zeros((2, d)), np.zeros((2, d)), np.zeros(d)
        for stages in self.pipelines:
            self._add_transfers(stages)
        steps = problem.options.micro_batches is not None
        self.hops = [hops(problem, each.placement) for each in self.pipelines] if steps else None

    def _add_transfers(self, stages: Stages) -> None:
        """What the stages of a pipeline send, and exchange with their replicas."""
        incoming, outgoing = np.zeros_like(self.incoming), np.zeros_like(self.outgoing)
        for tensor in _cut_tensors(self.problem, stages.placement).tolist():
            for each in transfers_of(stages, tensor):
                total = outgoing if each.outgoing else incoming
                total[each.way, each.stage] += each.seconds
        for total in (incoming, outgoing):
            stages.share_out(total)
        self.incoming += incoming
        self.outgoing += outgoing
        self.sync += stages.sync()

    def loads(self, op_seconds: Floats) -> Loads:
        """The loads if the ops take ``op_seconds[op]`` where they are."""
        problem = self.problem
        compute = np.zeros((2, problem.device_count))
        way = problem.is_backward.astype(np.int64)
        for stages in self.pipelines:
            seconds = self._on(stages.placement.device, op_seconds)
            np.add.at(compute, (way, stages.placement.device), seconds)
            stages.share_out(compute)
        if problem.options.shares == "unequal":
            self._share_unequally(compute, op_seconds)
        found = _added_up(problem.options, compute, self.incoming, self.outgoing, self.sync)
        return found if self.hops is None else in_steps(problem, self.placement, self.hops, found)

    def _on(self, device: Ints, op_seconds: Floats) -> Floats:
        """`[op]` seconds on devices of another pipeline, if it takes `op_seconds` in the first."""
        if device is self.pipelines[0].placement.device:
            return op_seconds
        ops = np.arange(self.problem.op_count)
        first = self.problem.op_time[ops, self.placement.device]
        other = self.problem.op_time[ops, device]
        return other * np.divide(op_seconds, first, out=np.ones(len(ops)), where=first > 0)

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
    return reduce(np.maximum, load_terms(options, compute, incoming, outgoing))


def load_terms(
    options: Options, compute: Floats, incoming: Floats, outgoing: Floats
) -> list[Floats]:
    """What the largest of counts for busy seconds, under the option `load`."""
    if options.load == "sum":
        return [compute + incoming + outgoing]
    if options.load == "overlap":
        return [compute, incoming + outgoing]
    return [compute, incoming, outgoing]


def _with_sync(options: Options, load: Floats, sync: Floats) -> Floats:
    return load + sync if options.load == "sum" else np.maximum(load, sync)
