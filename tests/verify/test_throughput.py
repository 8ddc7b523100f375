"""The judge of throughput: it agrees with the evaluator, and sees each kind of wrong plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import CPU, X, Y
from tests.builders import throughput_chain as chain
from tests.strategies import placements, problems


def planned(problem: Problem, placement: Placement) -> Plan:
    outcome = evaluate(problem, placement)
    return Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")


def test_a_device_computes_writes_what_others_read_and_reads_what_it_needs():
    plan = planned(chain(), Placement([X, X, Y, CPU]))
    assert plan.outcome.compute[0].tolist() == [2, 1, 9]
    assert plan.outcome.outgoing[0].tolist() == [2, 3, 0]
    assert plan.outcome.incoming[0].tolist() == [0, 2, 0]  # the CPU pays nothing
    assert plan.value == 9
    assert verify(plan).violations == ()


def test_sent_directly_both_ends_pay():
    plan = planned(chain(staging="direct"), Placement([X, X, Y, Y]))
    assert plan.outcome.outgoing[0].tolist() == [2.5, 0, 0]
    assert plan.outcome.incoming[0].tolist() == [0, 2.5, 0]
    assert plan.outcome.load.tolist() == [4.5, 5.5, 0]
    assert verify(plan).ok


@pytest.mark.parametrize(("load", "value"), [("sum", 5), ("overlap", 3), ("duplex", 3)])
def test_the_load_puts_the_parts_together(load, value):
    options = Options(objective="throughput", load=load)
    plan = planned(chain(options=options), Placement([X, X, Y, Y]))
    assert plan.value == value
    assert verify(plan).ok


@pytest.mark.parametrize(
    ("load", "schedule", "value"),
    [
        ("sum", "pipedream", 8),
        ("overlap", "pipedream", 4),
        ("duplex", "pipedream", 4),
        ("overlap", "gpipe", 6),
        ("duplex", "gpipe", 6),
    ],
)
def test_passes_are_added_before_the_largest_is_taken_and_in_gpipe_after(load, schedule, value):
    """x computes 3 s and sends 1 s forward, and computes 1 s and sends 3 s backward."""
    problem = chain(
        op_time=[[3, 9, 9], [9, 0, 9], [1, 9, 9], [9, 0, 9]],
        is_backward=[False, False, True, True],
        tensor_producer=[0, 2],
        tensor_bytes=[1, 3],
        consumer_offsets=[0, 1, 2],
        consumers=[1, 3],
        options=Options("throughput", load=load, schedule=schedule, contiguous=False),
    )
    plan = planned(problem, Placement([X, Y, X, Y]))
    assert plan.value == value
    assert plan.outcome.load[X] == value
    assert verify(plan).violations == ()


@pytest.mark.parametrize("pinned", [[X, -1, -1, -1], [-1, -1, -1, X]])
def test_a_pinned_op_is_in_no_stage_with_replicas(pinned):
    alone = chain(device_memory=[9, 9, 9], options=Options("throughput", replicate=True))
    together = Placement([X, X, X, X], replicas=((X, Y),))
    assert verify(planned(alone, together)).ok
    problem = replace(alone, op_pinned=np.array(pinned))
    (said,) = verify(planned(problem, together)).violations
    assert "is pinned to 'x' but is on 'x' and 'y'" in said
    plan = solve(problem, "ideal-dp")
    assert all(X not in stage for stage in plan.placement.replicas)


def test_replicas_share_the_work_and_keep_their_weights_equal():
    options = Options(objective="throughput", replicate=True)
    problem = chain(options=options, op_sync_bytes=[4, 0, 0, 0], device_memory=[9, 9, 9])
    plan = planned(problem, Placement([X, X, X, X], replicas=((X, Y),)))
    assert plan.outcome.load.tolist() == [2.5 + 2, 2.5 + 2, 0]  # half of 5 s, half of 4 bytes
    assert plan.device_memory.tolist() == [4, 4, 0]
    assert verify(plan).ok


def test_gpipe_adds_the_largest_forward_to_the_largest_backward_load():
    options = Options(objective="throughput", schedule="gpipe")
    problem = chain(options=options, is_backward=[False, False, True, True])
    plan = planned(problem, Placement([X, X, Y, Y]))
    assert plan.outcome.incoming.tolist() == [[0, 0, 0], [0, 2, 0]]
    assert plan.value == (2 + 2) + (2 + 3)
    assert verify(plan).ok


@st.composite
def pipelines(draw):
    """A problem of any option and a placement, replicas included."""
    options = Options(
        objective="throughput",
        load=draw(st.sampled_from(["sum", "overlap", "duplex"])),
        schedule=draw(st.sampled_from(["pipedream", "gpipe"])),
        contiguous=False,
        replicate=True,
    )
    problem = draw(problems(max_ops=8, options=options, memory=False))
    d, n = problem.device_count, problem.op_count
    seconds = st.sampled_from([0.0, 0.25, 1.0])
    host = [draw(st.lists(seconds, min_size=2 * d, max_size=2 * d)) for _ in range(2)]
    device = draw(placements(problem))
    unused = [each for each in range(d) if each not in device]
    replicas = []
    for first in sorted(set(device.tolist())):
        count = draw(st.integers(0, len(unused)))
        others, unused = unused[:count], unused[count:]
        if others:
            replicas.append((first, *others))
    time = problem.op_time.copy()
    for first, *others in replicas:
        time[:, others] = time[:, [first]]
    problem = replace(
        problem,
        op_time=time,
        is_backward=descendants(problem, draw(st.sets(st.integers(0, n - 1)))),
        staging=draw(st.sampled_from(["direct", "host"])),
        host_latency=np.reshape(host[0], (2, d)),
        host_seconds_per_byte=np.reshape(host[1], (2, d)),
        op_sync_bytes=draw(st.lists(seconds, min_size=n, max_size=n)),
    )
    return problem, Placement(device, replicas=tuple(replicas))


def descendants(problem, ops):
    """`[op]` whether it is one of `ops` or comes after one."""
    reached = np.isin(np.arange(problem.op_count), list(ops))
    for op in problem.topological_order:
        start, end = problem.op_inputs[0][op : op + 2]
        reached[op] |= reached[problem.edge_producer[problem.op_inputs[1][start:end]]].any()
    return reached


def runs(problem, placement):
    return np.isfinite(problem.op_time[np.arange(problem.op_count), placement.device]).all()


@given(pipelines())
def test_judge_and_evaluator_agree_under_every_option(case):
    problem, placement = case
    if runs(problem, placement):
        assert verify(planned(problem, placement)).violations == ()


@given(pipelines(), st.data())
def test_no_figure_can_be_changed_unseen(case, data):
    problem, placement = case
    if not runs(problem, placement):
        return
    good = planned(problem, placement)
    name = data.draw(st.sampled_from(["compute", "incoming", "outgoing", "sync", "load", "value"]))
    if name == "value":
        wrong = replace(good, value=good.value + 1)
    else:
        figures = getattr(good.outcome, name).copy()
        figures.flat[data.draw(st.integers(0, figures.size - 1))] += 1.0
        wrong = replace(good, outcome=replace(good.outcome, **{name: figures}))
    assert not verify(wrong).ok


@pytest.mark.parametrize(
    ("problem", "placement", "said"),
    [
        (
            chain(),
            Placement([X, Y, X, Y]),
            "not contiguous: data goes in a circle over 'x' and 'y'",
        ),
        (chain(op_pinned=[1, -1, -1, -1]), Placement([X] * 3 + [Y]), "'a' is pinned to 'y'"),
        (
            chain(op_time=[[np.inf, 1, 1]] + [[1, 1, 1]] * 3),
            Placement([X, X, Y, Y]),
            "op 'a' is on 'x', which cannot run it",
        ),
        (chain(colocation=[0, -1, -1, 0]), Placement([X, X, Y, Y]), "'a' and 'd' must be together"),
        (chain(), Placement([X] * 4), "device 'x' needs 4 B and has 3 B"),
        (
            chain(),
            Placement([X, X, CPU, CPU], replicas=((X, Y),)),
            "the plan has replicas, and its problem does not allow them",
        ),
        (
            chain(options=Options(objective="throughput", replicate=True)),
            Placement([X, X, X, Y], replicas=((X, Y),)),
            "that is not its first",
        ),
        (
            chain(options=Options(objective="throughput", replicate=True)),
            Placement([X, X, X, Y], replicas=((Y, CPU),)),
            "are not equally fast",
        ),
        (
            chain(options=Options(objective="throughput", replicate=True)),
            Placement([X, X, CPU, CPU], replicas=((X, Y), (CPU, Y))),
            "is named by two stages",
        ),
        (
            chain(options=Options(objective="throughput", replicate=True)),
            Placement([X, X, CPU, CPU], replicas=((X,),)),
            "a stage of replicas names fewer than two devices",
        ),
        (
            chain(options=Options(objective="throughput", replicate=True)),
            Placement([CPU] * 4, replicas=((X, Y),)),
            "no op is on the stage of replicas 'x' and 'y'",
        ),
    ],
)
def test_a_wrong_placement_is_named(problem, placement, said):
    allowed = np.where(np.isfinite(problem.op_time), problem.op_time, 1.0)
    outcome = evaluate(replace(problem, op_time=allowed), placement)
    plan = Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")
    assert any(said in each for each in verify(plan).violations), verify(plan).violations


def test_backward_data_may_go_down_the_row_or_up_but_not_both():
    # a → b forward; d → c backward; b → c between the passes.
    problem = chain(
        consumers=[1, 2, 2],
        tensor_producer=[0, 1, 3],
        is_backward=[False, False, True, True],
        device_memory=[9, 9, 9],
    )
    assert verify(planned(problem, Placement([X, Y, X, Y]))).ok  # d → c goes down
    assert verify(planned(problem, Placement([X, Y, Y, X]))).ok  # all of it goes up
    two = chain(
        op_names=("a", "b", "c", "d"),
        consumers=[1, 3, 1][:2],
        tensor_producer=[0, 2],
        tensor_bytes=[1, 1],
        consumer_offsets=[0, 1, 2],
        is_backward=[True] * 4,
        device_memory=[9, 9, 9],
    )  # a → b and c → d, all backward
    assert not verify(planned(two, Placement([X, Y, Y, X]))).ok


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lower_bound": 99.0}, "the lower bound 99.000 s is not between 0 and the value"),
        ({"lower_bound": float("nan")}, "is not between 0 and the value"),
        ({"placement": Placement([X] * 3)}, "placement has 3 entries for 4 ops"),
        ({"placement": Placement([X] * 3 + [7])}, "names device 7, but devices go from 0 to 2"),
    ],
)
def test_a_claim_that_cannot_be_is_named(changes, said):
    plan = replace(planned(chain(), Placement([X, X, Y, Y])), **changes)
    assert any(said in each for each in verify(plan).violations), verify(plan).violations
