"""The judge of steps of micro-batches: how long one takes, and what stages keep meanwhile.

From the definitions (`docs/problem.md`): every pass of every micro-batch is put after those that it
waits for, one by one, and after all passes of a stage the exchange of its gradients between
data-parallel pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from placewright.plan import Placement
from placewright.problem import Problem

FORWARD, BACKWARD = 0, 1
Pass = tuple[int, int, int]
"""Stage, way and micro-batch."""


@dataclass(frozen=True)
class StepTimes:
    """What one pass takes: ``passes[way][stage]`` seconds, and of these ``shared[way][stage]`` in
    which a stage sends to its neighbour along the way, and this one receives, both in that pass.
    """

    passes: Sequence[Sequence[float]]
    shared: Sequence[Sequence[float]]


def own_micro_batches(problem: Problem) -> int:
    """How many of the micro-batches of a step a pipeline does."""
    return (problem.options.micro_batches or 1) // problem.options.data_parallel


def most_in_flight(problem: Problem, stages: int) -> list[int]:
    """Per stage, of how many micro-batches it keeps activations at a time."""
    count = own_micro_batches(problem)
    if not any(problem.is_backward.tolist()):
        return [1] * stages
    if problem.options.schedule == "gpipe":
        return [count] * stages
    return [min(count, stages - stage) for stage in range(stages)]


def order_of(stage: int, most: int, micro_batches: int) -> Iterator[Pass]:
    """The passes of a stage of training: backward ones once `most` micro-batches are in flight."""
    forward = backward = 0
    while backward < micro_batches:
        if forward < micro_batches and forward - backward < most:
            yield stage, FORWARD, forward
            forward += 1
        else:
            yield stage, BACKWARD, backward
            backward += 1


def ends_of(problem: Problem, times: StepTimes) -> list[float]:
    """Per stage of a pipeline, when its last pass has ended."""
    count, stages = own_micro_batches(problem), len(times.passes[FORWARD])
    trains = any(problem.is_backward.tolist())
    after: dict[Pass, Pass | None] = {}
    for stage, most in enumerate(most_in_flight(problem, stages)):
        before: Pass | None = None
        inference = ((stage, FORWARD, number) for number in range(count))
        for each in order_of(stage, most, count) if trains else inference:
            after[each] = before
            before = each
    waits = {each: _awaited(each, stages) for each in after}
    graph = {each: [one for one in (after[each], waits[each]) if one is not None] for each in after}
    end: dict[Pass, float] = {}
    for each in TopologicalSorter(graph).static_order():
        stage, way, _ = each
        start = 0.0
        if (one := after[each]) is not None:
            start = end[one]
        if (one := waits[each]) is not None:
            start = max(start, end[one] - times.shared[way][one[0]])
        end[each] = start + times.passes[way][stage]
    return [max(end[each] for each in end if each[0] == stage) for stage in range(stages)]


def exchange_of(problem: Problem, weights: float, members: Sequence[int]) -> float:
    """Seconds in which devices of data-parallel pipelines add up gradients of so many bytes.

    In a ring each of r sends a part of 1/r on, 2 (r − 1) times, over the slowest way of any two.
    """
    r = len(members)
    if r < 2 or weights <= 0:
        return 0.0
    if problem.staging == "host":
        slowest = [
            sum(max(float(table[way, d]) for d in members) for way in (0, 1))
            for table in (problem.host_latency, problem.host_seconds_per_byte)
        ]
    else:
        slowest = [
            max(float(table[a, b]) for a in members for b in members if a != b)
            for table in (problem.link_latency, problem.link_seconds_per_byte)
        ]
    return 2 * (r - 1) * (slowest[0] + weights / r * slowest[1])


def wrong_pipelines(problem: Problem, placement: Placement) -> Iterator[str]:
    """What is wrong with the devices of the stages of data-parallel pipelines."""
    count, stages = problem.options.data_parallel, placement.replicas
    if count == 1:
        if stages:
            yield "the plan has replicas, and its micro-batches go through one pipeline"
        return
    if tuple(stage[0] for stage in stages) != tuple(placement.row):
        yield "the plan's replicas are not the stages of its row, in that order"
    for stage in stages:
        if len(stage) != count:
            named = ", ".join(_name(problem, each) for each in stage)
            yield f"a stage is on {named}, and there are {count} data-parallel pipelines"


def _awaited(each: Pass, stages: int) -> Pass | None:
    """The pass of a neighbour that a pass gets its data from."""
    stage, way, number = each
    if way == FORWARD:
        return None if stage == 0 else (stage - 1, FORWARD, number)
    return None if stage == stages - 1 else (stage + 1, BACKWARD, number)


def wrong_row(problem: Problem, row: Sequence[int], device: Sequence[int]) -> Iterator[str]:
    """What is wrong with a row: its devices, and data that does not go along it."""
    names = problem.device_names
    if sorted(row) != sorted(set(device)):
        yield (
            f"the row of stages is {', '.join(_name(problem, each) for each in row) or 'empty'}, "
            "and not each device with ops once"
        )
        return
    place = {each: number for number, each in enumerate(row)}
    backward = problem.is_backward.tolist()
    ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    for producer, consumer in ends:
        one, two = place[device[producer]], place[device[consumer]]
        what = f"from '{names[device[producer]]}' to '{names[device[consumer]]}'"
        if backward[producer] and not backward[consumer]:
            yield f"op '{problem.op_names[consumer]}' of a forward pass reads of a backward pass"
        elif backward[producer] and one < two:
            yield f"backward data goes up the row of stages, {what}"
        elif not backward[consumer] and one > two:
            yield f"forward data goes down the row of stages, {what}"
        else:
            continue
        return


def _name(problem: Problem, device: int) -> str:
    known = 0 <= device < problem.device_count
    return f"'{problem.device_names[device]}'" if known else str(device)
