"""The bound over a chain of ops and what lies between them, where branches are parallel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.invocation.path import CHAIN_SOURCE, path_bound
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.problem import Problem
from tests.naive.invocation import least_latency
from tests.strategies.common import graph_columns
from tests.strategies.invocation import invocation_problems

SECONDS = st.sampled_from([0.5, 1.0, 2.0, 3.0, 0.1])


def forks(widths):
    """An op, so many that read it, an op that joins these, and so on."""
    builder = GraphBuilder("forks")

    def op(reads):
        number = builder.add_op(f"op{builder.op_count}", "op", reads, parameter_bytes=1.0)
        return builder.add_tensor(number, 1.0)

    last = op([])
    for width in widths:
        last = op([op([last]) for _ in range(width)])
    return builder.build()


def problem_of(graph, times, memory, host, cpus=0):
    n, d = times.shape
    accelerators = d - cpus
    host = np.concatenate([np.full((2, accelerators), host), np.zeros((2, cpus))], axis=1)
    return Problem(
        name="forks",
        **graph_columns(graph),
        op_time=times,
        op_memory=graph.op_parameter_bytes,
        op_pinned=np.full(n, -1),
        device_names=tuple(f"device{each}" for each in range(d)),
        device_kinds=("acc",) * accelerators + ("cpu",) * cpus,
        device_memory=memory,
        link_latency=np.zeros((d, d)),
        link_seconds_per_byte=np.zeros((d, d)),
        channel_offsets=np.zeros(d * d + 1),
        channels=np.zeros(0),
        channel_names=(),
        options=Options(objective="invocation-latency", subgraphs=1),
        is_cpu=np.arange(d) >= accelerators,
        staging="host",
        host_latency=host,
        host_seconds_per_byte=np.zeros((2, d)),
    )


@st.composite
def fork_problems(draw, cpus=True):
    widths, most = draw(st.sampled_from([([2], 5), ([3], 4), ([1, 1], 3), ([4], 3)]))
    graph = forks(widths)
    accelerators = draw(st.integers(2, most))
    cpus = draw(st.integers(0, int(cpus and most < 5)))
    n, d = graph.op_count, accelerators + cpus
    times = np.array(draw(st.lists(SECONDS, min_size=n * d, max_size=n * d))).reshape(n, d)
    pace = draw(st.sampled_from(["each", "by turns", "one quick", "one"]))
    if pace != "each":
        times[:, :accelerators] = times[:, :1]
    if pace == "by turns":
        times[:, 1:accelerators:2] *= 2.2
    if pace == "one quick":
        times[:, 1:accelerators] *= 2.2
    memory = np.full(d, np.inf)
    rooms = st.lists(st.integers(1, n), min_size=accelerators, max_size=accelerators)
    if draw(st.booleans()):
        memory[:accelerators] = draw(rooms)
    return problem_of(graph, times, memory, draw(st.sampled_from([0.0, 0.1])), cpus)


@settings(max_examples=40, deadline=None)
@given(problem=fork_problems())
def test_no_plan_of_parallel_branches_is_below_the_bound(problem):
    assert path_bound(problem).value <= least_latency(problem) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(problem=invocation_problems(5, 2, training=True))
def test_no_plan_of_both_passes_is_below_the_bound(problem):
    """A backward op between forward ones, or after them all, is in a subgraph of its own pass."""
    assert path_bound(problem).value <= least_latency(problem) * (1 + 1e-9)


def test_slow_accelerators_beside_do_not_hasten_branches():
    """Two of 2.2 times the seconds take longer for two branches than one that is quick."""
    graph = forks([2, 2])
    times = np.ones((graph.op_count, 4)) * np.array([1.0, 2.2, 1.0, 2.2])
    problem = problem_of(graph, times, np.full(4, np.inf), 0.0)
    assert path_bound(problem).value == pytest.approx(7.0)


@pytest.mark.parametrize(("accelerators", "seconds"), [(3, 7.0), (4, 6.0), (7, 5.0)])
def test_branches_run_at_once_only_on_accelerators_that_are_left(accelerators, seconds):
    """Two forks of two ops, a second each: what is before and after them takes one each too."""
    graph = forks([2, 2])
    times, endless = np.ones((graph.op_count, accelerators)), np.full(accelerators, np.inf)
    bound = path_bound(problem_of(graph, times, endless, 0.0))
    assert bound.value == pytest.approx(seconds)
    assert seconds == 5.0 or bound.source == CHAIN_SOURCE
