"""What contiguous stages keep on one device, and which colocated ops are said to be why."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.analysis.ties import check_fits, largest_tie
from placewright.errors import InfeasibleError
from placewright.planning import make_problem
from placewright.solving import compare, solve
from tests.builders import tied_row as row
from tests.naive.throughput import all_splits, best_split, is_contiguous
from tests.strategies.throughput import throughput_problems


def test_what_is_between_tied_ops_is_with_them():
    tie = largest_tie(row([-1, 0, -1, -1, 0, -1]))
    assert tie is not None
    assert tie.ops.tolist() == [1, 2, 3, 4]
    assert [unit.tolist() for unit in tie.ends] == [[1, 4]]
    assert (tie.seconds.tolist(), tie.memory) == ([4.0, 4.0], 4.0)
    assert str(tie) == (
        "'o1' and 'o4' are on one device (colocated, as tied weights are), and contiguous stages "
        "keep 2 other ops there too"
    )


def test_replicas_share_what_a_tie_takes():
    tie = largest_tie(row([0, -1, 0], replicate=True))
    assert tie is not None
    assert tie.seconds.tolist() == [1.5, 1.5]


def test_replicas_with_shares_of_any_size_share_it_by_speed():
    problem = row([0, -1, 0], replicate=True)
    options = replace(problem.options, shares="unequal")
    time = problem.op_time * [1.0, 3.0]
    tie = largest_tie(replace(problem, op_time=time, options=options))
    assert tie is not None
    assert tie.seconds.tolist() == pytest.approx([2.25, 2.25])


def test_of_several_ties_those_farthest_apart_are_named_and_only_as_many_as_it_takes():
    tie = largest_tie(row([0, 1, 1, 2, -1, 2, 0]))
    assert tie is not None
    assert [unit.tolist() for unit in tie.ends] == [[0, 6]]
    crossed = largest_tie(row([0, 1, 0, 2, 1, 2]))
    assert crossed is not None
    assert [unit.tolist() for unit in crossed.ends] == [[1, 4]]
    assert len(crossed.ops) == 6


def test_ops_that_fill_a_device_to_the_last_byte_fit():
    """In the order of units they come to 0.6000000000000001, and the device has 0.6."""
    problem = replace(row([0, -1, 0], capacity=0.6), op_memory=np.array([0.1, 0.2, 0.3]))
    check_fits(problem)
    assert solve(problem, "ideal-dp").status == "optimal"


@pytest.mark.parametrize(
    ("ties", "said"),
    [
        ([0, 1, 0, 1], ", so are 'o1' and 'o3', and contiguous stages keep all of them together"),
        (
            [0, 1, 2, 3, 0, 1, 2, 3],
            ", so are 'o1' and 'o5' and the ops of 2 more groups, and contiguous stages keep all",
        ),
    ],
)
def test_where_it_takes_several_ties_they_are_named_too(ties, said):
    assert said in str(largest_tie(row(ties)))


def test_of_many_tied_ops_few_are_named():
    tie = largest_tie(row([0, -1, 0, -1, 0, -1, 0]))
    assert str(tie).startswith("'o0', 'o2' and 2 more are on one device")


def test_ops_that_follow_one_another_make_no_tie():
    assert largest_tie(row([-1, 0, 0, -1])) is None


@pytest.mark.parametrize(
    ("source", "training", "named"),
    [
        ("zoo:gpt2?layers=2", False, "'embedding.tokens' and 'lm_head' are "),
        ("zoo:gpt2?layers=2", True, "'embedding.tokens' and 'lm_head' are "),
        ("zoo:t5-base", True, "'encoder.embedding', 'decoder.embedding' and 'lm_head' are "),
        ("zoo:bert-base", True, None),
        ("zoo:llama-7b", True, None),
    ],
)
def test_models_with_tied_weights_have_their_embeddings_named(source, training, named):
    asked = {"objective": "throughput"}
    apart, _ = make_problem(source, "2x3090", asked, training=training)
    assert largest_tie(apart) is None  # a copy each
    problem, _ = make_problem(source, "2x3090", asked, training=training, together=True)
    tie = largest_tie(problem)
    assert (tie is None) == (named is None)
    assert named is None or str(tie).startswith(named)


@st.composite
def tied_problems(draw, **shape):
    """Random ones, in which an op before an edge is colocated with one after the next."""
    problem = draw(throughput_problems(max_devices=2, **shape))
    ends = list(zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True))
    pairs = [(a, d) for a, b in ends for c, d in ends if b == c]
    assume(pairs)
    group = problem.colocation.copy()
    for op in draw(st.sampled_from(pairs)):
        group[(group == group[op]) & (group[op] >= 0)] = problem.op_count
        group[op] = problem.op_count
    pinned = np.full(problem.op_count, -1)
    return replace(problem, colocation=group, op_pinned=pinned)


@given(tied_problems(training=False, replicate=False))
def test_a_tie_is_on_one_device_in_every_contiguous_split(problem):
    tie = largest_tie(problem)
    assume(tie is not None)
    for placement in all_splits(problem):
        if is_contiguous(problem, placement.device):
            assert len(set(placement.device[tie.ops].tolist())) == 1


@given(tied_problems())
def test_no_contiguous_split_takes_less_than_a_tie(problem):
    tie = largest_tie(problem)
    assume(tie is not None)
    assert best_split(problem)[0] >= tie.seconds.min() * (1 - 1e-9)


@given(tied_problems())
def test_what_is_said_to_have_no_contiguous_split_has_none(problem):
    try:
        check_fits(problem)
    except InfeasibleError:
        assert best_split(problem)[0] == math.inf


FITS_NOWHERE = (
    r"there is no contiguous split: 'o0' and 'o3' are on one device .*keep 2 other ops there too, "
    r"4 B in all, and the largest that may hold them has 3 B; .*--no-contiguous"
)


@pytest.mark.parametrize("planner", ["auto", "single-device", "greedy", "ideal-dp", "pipedream"])
def test_a_tie_that_fits_no_device_is_said_before_planning(planner):
    with pytest.raises(InfeasibleError, match=FITS_NOWHERE):
        solve(row([0, -1, -1, 0], 3.0), planner)


def test_a_tie_that_fits_no_device_is_said_once_in_a_comparison():
    with pytest.raises(InfeasibleError, match=FITS_NOWHERE):
        compare(row([0, -1, -1, 0], 3.0))
    lines = compare(row([0, -1, -1, 0], 3.0, contiguous=False))
    assert any(line.plan for line in lines)


def test_a_tie_that_no_device_may_run_is_said_so():
    problem = row([0, -1, 0])
    times = problem.op_time.copy()
    times[0, 0] = times[1, 1] = np.inf
    with pytest.raises(InfeasibleError, match="and no device may run them all; allow"):
        check_fits(replace(problem, op_time=times))
