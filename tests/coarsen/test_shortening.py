"""Planning few of the equal blocks: what comes back is a plan of all of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.coarsen import coarsen
from placewright.coarsen.shortening import shorten
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.kernels.common.lifting import lift
from placewright.plan import Placement, Plan
from placewright.planning import make_problem
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.naive import coarsen as naive_coarsen
from tests.strategies import placements, problems, problems_of_blocks


def shortened(problem):
    try:
        return shorten(problem)
    except OptionError:
        assume(False)
        raise


def supported(problem, device):
    return np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all()


@given(st.data())
def test_what_is_placed_like_the_few_holds_and_takes_the_same_memory(data):
    problem, _ = data.draw(problems_of_blocks(memory=False))
    short = shortened(problem)
    device = data.draw(placements(short.problem))
    assume(supported(short.problem, device))
    bare = short.expand(Placement(device))
    ordered = short.expand(schedule_placement(short.problem, device))
    for placement in (bare, ordered):
        schedule = time_placement(problem, placement)
        plan = Plan(
            problem, Placement(placement.device), schedule, schedule.makespan, 0.0, "", "test"
        )
        assert verify(plan).violations == ()
    used = np.bincount(bare.device, problem.op_memory, problem.device_count)
    expected = np.bincount(device, short.problem.op_memory, problem.device_count)
    assert np.allclose(used, expected)
    back = short.project(ordered)
    assert back is not None and (back.device == device).all()


@given(drawn=problems_of_blocks())
def test_the_few_are_like_those_they_stand_for(drawn):
    """Naively: an edge of the few is like those of which both ends and the size are."""
    problem, _ = drawn
    short = shortened(problem)
    few = short.problem
    assert few.op_count < problem.op_count
    copies = np.bincount(short.op_group, minlength=few.op_count)
    assert (copies >= 1).all()
    for op in range(few.op_count):
        members = np.flatnonzero(short.op_group == op)
        assert np.allclose(few.op_time[op], problem.op_time[members].mean(axis=0))
        assert np.isclose(few.op_memory[op], problem.op_memory[members].sum())
    for edge, like in enumerate(short.edge_of.tolist()):
        if like >= 0:
            assert short.op_group[problem.consumers[edge]] == few.consumers[like]
            nbytes = few.tensor_bytes[few.edge_tensor[like]]
            assert nbytes == problem.tensor_bytes[problem.edge_tensor[edge]]
    assert set(short.edge_of.tolist()) >= set(range(few.edge_count))


@pytest.mark.parametrize("contention", ["none", "port"])
def test_a_chain_of_blocks_takes_what_the_few_say(contention):
    """Each block left out takes as long as the one that stands for it; the order is kept."""
    builder = GraphBuilder("chain")
    ops = [builder.add_op(f"op{k}", f"kind{k % 5}", flops=1e9 * (1 + k % 5)) for k in range(50)]
    for one, two in pairwise(ops):
        builder.connect(builder.add_tensor(one, 1e6), two)
    problem = make_problem(builder.build(), "2x3090", {"contention": contention})[0]
    short = shorten(problem)
    # Nine blocks, for the first op reads nothing, and 4 ops after them.
    assert short.problem.op_count == 1 + 3 * 5 + 4
    device = np.arange(20) % 5 % 2  # two of five ops of each block on the other device
    placement = schedule_placement(short.problem, device.astype(np.int32))
    few = time_placement(short.problem, placement)
    period = few.op_finish[10] - few.op_finish[5]
    whole = time_placement(problem, short.expand(placement))
    assert whole.makespan == pytest.approx(few.makespan + 6 * period)


def test_a_model_that_fits_no_device_is_parted_into_stretches():
    problem = make_problem("zoo:llama-13b", "moirai-inter-server")[0]
    (one,) = shorten(with_memory(problem, 1.1)).series
    (several,) = shorten(with_memory(problem, 0.4)).series
    assert one.stretch.tolist() == [0, 0, 0]
    assert len(set(several.stretch.tolist())) > 1
    assert (np.diff(several.block) >= 0).all() and len(several.block) == one.repeat.count
    assert solve(with_memory(problem, 0.4), "heft", coarsening="repeats").value > 0


def with_memory(problem, share):
    """Devices that each hold so much of the model."""
    return replace(problem, device_memory=np.full(4, share * problem.op_memory.sum()))


@pytest.mark.parametrize("planner", ["heft", "annealing", "lns", "multilevel"])
def test_planners_plan_the_few(planner):
    """`solve` has the judge read what comes of it."""
    problem = make_problem("zoo:gpt2?layers=8", "moirai-intra-server", {"contention": "port"})[0]
    alone = solve(problem, planner, coarsening="repeats", time_limit=2.0)
    assert alone.coarsening == "repeats"
    again = solve(problem, planner, coarsening="repeats", time_limit=1.0, start=alone.placement)
    assert again.value > 0


@given(problem=problems(max_ops=8))
def test_a_graph_without_blocks_is_refused(problem):
    try:
        shorten(problem)
    except OptionError as error:
        assert "no block" in str(error)


def test_other_objectives_are_refused():
    problem = make_problem("zoo:gpt2", "2x3090", {"objective": "throughput"})[0]
    with pytest.raises(OptionError, match="objective latency, not for throughput"):
        shorten(problem)


@given(drawn=problems_of_blocks())
def test_heft_on_the_few_or_an_honest_refusal(drawn):
    problem, _ = drawn
    try:
        plan = solve(problem, "heft", coarsening="repeats")
    except (OptionError, InfeasibleError):
        return
    assert verify(plan).ok


@given(st.data())
def test_lifting_is_its_naive_twin(data):
    problem = data.draw(problems())
    some = st.sampled_from([-np.inf, 0.0, 1.0, 2.5])
    n, edges = problem.op_count, problem.edge_count
    op_time = np.array(data.draw(st.lists(some, min_size=n, max_size=n)))
    edge_time = np.array(data.draw(st.lists(some, min_size=edges, max_size=edges)))
    expected = naive_coarsen.lifted(problem, op_time, edge_time)
    offsets, inputs = problem.op_inputs
    lift(problem.topological_order, offsets, inputs, problem.edge_producer, op_time, edge_time)
    assert (op_time.tolist(), edge_time.tolist()) == expected


def test_coarsenings_follow_one_another():
    problem = make_problem("zoo:gpt2", "moirai-inter-server")[0]
    both, fused = coarsen(problem, "repeats+fusion"), coarsen(problem, "fusion")
    assert both is not None and fused is not None
    assert both.problem.op_count < fused.problem.op_count < problem.op_count
    heft = solve(problem, "heft", coarsening="repeats+fusion")
    back = both.project(Placement(heft.placement.device))
    assert back is not None and (both.expand(back).device == heft.placement.device).all()
    assert coarsen(problem, "none+fusion").problem.op_count == fused.problem.op_count
    with pytest.raises(OptionError, match="no coarsening 'fussion'"):
        coarsen(problem, "repeats+fussion")
