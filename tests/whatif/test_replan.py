"""Replanning: what moves, what it buys, and which answer is chosen."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.errors import InfeasibleError, InputError, OptionError, VerificationError
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.planners.base import LatencyPlanner, Proposal
from placewright.planners.latency.construct.list_scheduling import Greedy
from placewright.planning import plan
from placewright.problem import Problem
from placewright.report.whatif import replan_record
from placewright.solving import solve
from placewright.verify import verify
from placewright.whatif import repair
from placewright.whatif import replan_latency as module
from placewright.whatif.changes import home_devices, on_cluster, without_devices
from placewright.whatif.moves import State, unit_order, unit_sets
from placewright.whatif.replan import replan
from placewright.whatif.trade import thinned
from tests.strategies import graph_columns, problems

SEND = 0.25  # seconds of any transfer in `small`


class Fixed(LatencyPlanner):
    """A placement given by hand."""

    name = "fixed"

    def __init__(self, device):
        self.device = device

    def plan(self, problem, budget, seed, on_progress):
        return Proposal(Placement(np.array(self.device)))


def small(times, memory, edges=(), capacity=np.inf, modules=None, **columns) -> Problem:
    """Ops with ``times[op][device]`` and `memory`; an edge is (producer, consumer)."""
    builder = GraphBuilder("small")
    tensors = {}
    for op in range(len(times)):
        module = "" if modules is None else modules[op]
        inputs = [tensors[edge] for edge in edges if edge[1] == op]
        builder.add_op(f"op{op}", "op", inputs=inputs, module=module, parameter_bytes=memory[op])
        for edge in edges:
            if edge[0] == op:
                tensors[edge] = builder.add_tensor(op, 0.0)
    graph = builder.build()
    count = len(times[0])
    latency = np.full((count, count), SEND)
    np.fill_diagonal(latency, 0.0)
    return Problem(
        **graph_columns(graph),
        name="small", op_time=np.array(times, dtype=float), op_memory=np.array(memory, dtype=float),
        op_pinned=columns.pop("op_pinned", np.full(graph.op_count, -1)),
        device_names=tuple("xyzuvw"[:count]), device_kinds=("kind",) * count,
        device_memory=np.broadcast_to(capacity, count),
        link_latency=latency, link_seconds_per_byte=np.zeros((count, count)),
        channel_offsets=np.zeros(count * count + 1), channels=np.zeros(0), channel_names=(),
        options=Options(contention="none", **columns),
    )  # fmt: skip


def old_plan(problem: Problem, device) -> Plan:
    return solve(problem, Fixed(device))


# A on x, B on y, C on z. Without z, C may join A (4 + 3 = 7) or B (6 + 1 = 7) for one byte; all
# are done after 3 seconds if A and B change places too, which moves all 12 bytes.
CROSSED = small([[4, 2, 9], [3, 6, 9], [3, 1, 1]], [1, 10, 1])


# -- golden ----------------------------------------------------------------------------------------


def test_a_small_trade_is_found_whole():
    old = old_plan(CROSSED, [0, 1, 2])
    found = replan(old, without_devices(CROSSED, ["z"]))
    assert [(point.moved_bytes, point.plan.value) for point in found.points] == [(1, 7), (12, 3)]
    assert [point.kind for point in found.points] == ["repair", "free"]
    assert found.chosen is found.points[1]
    assert (found.forced_bytes, found.total_bytes) == (1.0, 12.0)
    assert [point.moved_ops for point in found.points] == [1, 3]


def test_a_weight_on_keeping_and_a_limit_choose_the_repair():
    old = old_plan(CROSSED, [0, 1, 2])
    lost = without_devices(CROSSED, ["z"])
    assert replan(old, lost, keep=1.0).chosen.kind == "repair"  # 3/7 + 1 > 1 + 1/12
    assert replan(old, lost, keep=0.6).chosen.kind == "free"  # 3/7 + 0.6 < 1 + 0.05
    assert replan(old, lost, max_move=11).chosen.kind == "repair"
    assert replan(old, lost, max_move=12).chosen.kind == "free"


def test_too_low_a_limit_is_infeasible_and_says_what_has_to_move():
    old = old_plan(CROSSED, [0, 1, 2])
    with pytest.raises(InfeasibleError, match="at least 1 B have to move, and --max-move allows 0"):
        replan(old, without_devices(CROSSED, ["z"]), max_move=0.0)


# Four chains of two ops of a second each, all on x, and a byte of weights per op but the last
# chain's, which has ten: moving chains to the empty y one by one takes 8 → 6 → 4 seconds.
CHAINS = small(
    [[1, 1, 1]] * 8, [1, 1, 1, 1, 1, 1, 10, 10], edges=[(0, 1), (2, 3), (4, 5), (6, 7)],
    modules=["a", "a", "b", "b", "c", "c", "d", "d"],
)  # fmt: skip


def test_between_the_ends_are_the_moves_that_save_most_per_byte():
    old = old_plan(CHAINS, [0] * 8)
    found = replan(old, without_devices(CHAINS, ["z"]), planner="met")
    trade = {point.moved_bytes: point.plan.value for point in found.points}
    assert trade[0.0] == 8.0
    assert trade[2.0] == 6.0
    assert trade[4.0] == 4.0
    assert max(trade) == 4.0 or found.points[-1].kind == "free"
    assert found.chosen.moved_bytes == 4.0


def test_nothing_lost_and_nothing_to_gain_moves_nothing():
    old = old_plan(small([[1, 2], [1, 2]], [1, 1], edges=[(0, 1)]), [0, 0])
    found = replan(old, old.problem)
    assert (found.chosen.moved_bytes, found.forced_bytes) == (0.0, 0.0)
    assert found.chosen.plan.value == 2.0


def test_devices_of_a_kind_keep_their_weights_under_the_names_they_have():
    """The planner would put the chain on x; it is on y, which is as good."""
    problem = small([[1, 1, 1]] * 3, [5, 5, 5], edges=[(0, 1), (1, 2)])
    old = old_plan(problem, [1, 1, 1])
    found = replan(old, without_devices(problem, ["z"]), planner="single-device")
    assert [(point.moved_bytes, point.plan.value) for point in found.points] == [(0.0, 3.0)]


def test_where_a_device_has_less_room_than_before_the_smallest_that_makes_room_leaves():
    problem = small([[1, 1]] * 3, [4, 2, 3], edges=[(0, 1), (1, 2)], capacity=9.0)
    old = old_plan(problem, [0, 0, 0])
    shrunk = problem.with_device_memory(np.array([7.0, 9.0]))
    repair = replan(old, shrunk).points[0]
    assert repair.moved_bytes == 2.0
    assert repair.plan.placement.device.tolist() == [0, 1, 0]


def test_peak_memory_is_kept_too():
    """Two ops of three bytes and a tensor of half a byte fit a device, a third op does not."""
    problem = small([[1, 1, 1]] * 4, [3] * 4, edges=[(0, 1), (1, 2), (2, 3)], capacity=7.0)
    problem = replace(
        problem, options=Options(contention="none", memory="peak"), tensor_bytes=np.full(3, 0.5)
    )
    old = old_plan(problem, [0, 0, 1, 1])
    found = replan(old, without_devices(problem, ["y"]), planner="region-moves")
    assert all(verify(point.plan).ok for point in found.points)
    assert [point.moved_bytes for point in found.points] == [6.0]
    tight = without_devices(problem, ["y"]).with_device_memory(np.array([6.4, 12.9]))
    points = replan(old, tight, planner="region-moves").points
    assert all(verify(point.plan).ok for point in points)
    assert points[0].moved_bytes == 9.0  # one op leaves x, where the tensor has no room beside two


# -- any problem -----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(problems(max_ops=8), st.data())
def test_every_answer_holds_and_counts_what_moves(problem, data):
    assume(problem.device_count > 1)
    try:
        old = solve(problem, Greedy())
    except InfeasibleError:
        assume(False)
    lost = data.draw(st.sampled_from(problem.device_names))
    left = without_devices(problem, [lost])
    try:
        found = replan(old, left, planner="greedy")
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            solve(left, Greedy())
        return
    before = old.device_of()
    for point in found.points:
        assert verify(point.plan).ok
        after = point.plan.device_of()
        moved = [op for op, name in enumerate(problem.op_names) if before[name] != after[name]]
        assert point.moved_ops == len(moved)
        assert point.moved_bytes == pytest.approx(sum(problem.op_memory[op] for op in moved))
        assert point.moved_bytes >= found.forced_bytes - 1e-9
    kinds = [point.kind for point in found.points]
    values = [point.plan.value for point in found.points if point.kind == "between"]
    assert values == sorted(values, reverse=True)
    assert kinds.count("repair") <= 1 and kinds.count("free") <= 1
    assert found.chosen in found.points
    if "repair" in kinds and problem.options.memory == "resident":
        repair = found.points[kinds.index("repair")]
        assert repair.moved_bytes == pytest.approx(found.forced_bytes)


def test_equal_input_gives_equal_answers():
    old = plan("zoo:gpt2?layers=2", "8xA100", planner="heft")
    left = without_devices(old.problem, ["gpu1"])
    one, other = (replan(old, left, planner="heft") for _ in range(2))
    assert one.chosen.plan.to_document() == other.chosen.plan.to_document()
    assert len(one.points) == len(other.points)


# -- the problem that is left ----------------------------------------------------------------------


def test_losing_a_device_leaves_the_rest_as_it_was():
    problem = plan("zoo:gpt2?layers=1", "a100+2xt4+cpu", planner="met").problem
    left = without_devices(problem, ["t4-0"])
    kept = [0, 2, 3]
    assert left.device_names == ("a100", "t4-1", "cpu")
    assert (left.op_time == problem.op_time[:, kept]).all()
    assert (left.link_latency == problem.link_latency[np.ix_(kept, kept)]).all()
    for a, old_a in enumerate(kept):
        for b, old_b in enumerate(kept):
            assert channels(left, a, b) == channels(problem, old_a, old_b)
    assert left.options == problem.options


def channels(problem, a, b):
    pair = a * problem.device_count + b
    low, high = problem.channel_offsets[pair : pair + 2]
    return [problem.channel_names[k] for k in problem.channels[low:high]]


def test_an_unknown_device_cannot_be_lost():
    with pytest.raises(OptionError, match="no device 'q' to lose; the plan has x, y, z"):
        without_devices(CROSSED, ["q"])


def test_all_devices_cannot_be_lost():
    with pytest.raises(InfeasibleError, match="all devices of the plan are lost"):
        without_devices(CROSSED, ["x", "y", "z"])


def test_a_pin_to_a_lost_device_is_infeasible_and_others_are_renumbered():
    problem = replace(CROSSED, op_pinned=np.array([-1, -1, 2]))
    with pytest.raises(InfeasibleError, match="'op2' is pinned to 'z', which is gone"):
        without_devices(problem, ["z"])
    assert without_devices(problem, ["x"]).op_pinned.tolist() == [-1, -1, 1]
    found = replan(old_plan(problem, [0, 1, 2]), without_devices(problem, ["x"]))
    assert all(point.plan.device_of()["op2"] == "z" for point in found.points)


def test_a_model_that_does_not_fit_what_is_left_is_infeasible():
    problem = small([[1, 1]] * 2, [4, 4], capacity=5.0)
    with pytest.raises(InfeasibleError, match="the model needs 8 B, the devices have 5 B"):
        replan(old_plan(problem, [0, 1]), without_devices(problem, ["y"]))


def test_another_cluster_is_planned_from_the_source_with_devices_by_name():
    old = plan("zoo:gpt2?layers=2", "2x3090", planner="single-device", contention="none")
    problem = on_cluster(old, "8xA100")
    assert problem.device_count == 8
    assert problem.options == old.problem.options
    used = int(old.placement.device[0])
    assert home_devices(old, problem).tolist() == [used] * problem.unit_count
    assert (problem.op_memory == old.problem.op_memory).all()


def test_a_training_plan_keeps_its_memory_on_another_cluster():
    from placewright.costs.roofline import CostOptions

    costs = CostOptions(optimizer="sgd")
    old = plan("zoo:gpt2?layers=1", "2x3090", planner="met", training=True, costs=costs)
    assert (on_cluster(old, "4090+3060").op_memory == old.problem.op_memory).all()


def test_a_source_that_has_changed_is_refused():
    old = plan("zoo:gpt2?layers=2", "2x3090", planner="met")
    with pytest.raises(InputError, match="is not what the plan was made from"):
        on_cluster(replace(old, source="zoo:gpt2?layers=1"), "2x3090")
    with pytest.raises(InputError, match="does not say what it was made from"):
        on_cluster(replace(old, source=""), "2x3090")


def test_a_home_that_does_not_support_an_op_any_more_is_none():
    old = old_plan(CROSSED, [0, 1, 2])
    times = CROSSED.op_time.copy()
    times[1, 1] = np.inf
    assert home_devices(old, replace(CROSSED, op_time=times)).tolist() == [0, -1, 2]


def test_colocated_ops_that_were_apart_have_no_home():
    old = old_plan(CROSSED, [0, 1, 2])
    together = replace(CROSSED, colocation=np.array([0, 0, -1]))
    assert home_devices(old, together).tolist() == [-1, 2]


# -- refused ---------------------------------------------------------------------------------------


def test_another_objective_is_refused():
    old = plan("zoo:gpt2?layers=1", "2x3090", objective="batch-throughput", planner="greedy")
    with pytest.raises(OptionError, match="latency and throughput, not for batch-throughput"):
        replan(old, old.problem)


def test_a_plan_that_does_not_hold_is_refused():
    old = old_plan(CROSSED, [0, 1, 2])
    with pytest.raises(VerificationError):
        replan(replace(old, value=1.0), CROSSED)


@pytest.mark.parametrize("options", [{"keep": -1.0}, {"keep": float("nan")}, {"max_move": -1.0}])
def test_weights_below_nothing_are_refused(options):
    with pytest.raises(OptionError, match=r"--keep|--max-move"):
        replan(old_plan(CROSSED, [0, 1, 2]), CROSSED, **options)


# -- Ctrl-C, records, sets -------------------------------------------------------------------------


def test_an_interrupt_of_the_search_keeps_the_ends(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    old = old_plan(CROSSED, [0, 1, 2])
    monkeypatch.setattr(module, "descend", interrupted)
    found = replan(old, without_devices(CROSSED, ["z"]))
    assert [point.kind for point in found.points] == ["repair", "free"]


def test_an_interrupt_of_the_repair_ends_with_the_repair(monkeypatch):
    def interrupted(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)

    old = old_plan(CROSSED, [0, 1, 2])
    monkeypatch.setattr(repair, "descend", interrupted)
    found = replan(old, without_devices(CROSSED, ["z"]))
    assert [point.kind for point in found.points] == ["repair"]
    assert found.chosen.moved_bytes == 1.0


def test_a_time_limit_is_kept():
    old = plan("zoo:gpt3-1.3b", "8xA100", planner="heft")
    started = time.perf_counter()
    found = replan(old, without_devices(old.problem, ["gpu0"]), time_limit=0.5, planner="heft")
    assert found.points
    assert time.perf_counter() - started < 30  # with judging, which has no limit


def test_the_record_holds_the_chosen_plan_and_every_answer():
    found = replan(old_plan(CROSSED, [0, 1, 2]), without_devices(CROSSED, ["z"]))
    record = replan_record(found, "new.json")
    assert json.loads(json.dumps(record)) == record
    assert record["chosen"]["plan"] == "new.json"
    assert record["chosen"]["value"] == 3.0
    assert [point["chosen"] for point in record["points"]] == [False, True]
    assert [point["moved_bytes"] for point in record["points"]] == [1.0, 12.0]


def test_the_lower_bound_is_that_of_the_problem_that_is_left():
    found = replan(old_plan(CROSSED, [0, 1, 2]), without_devices(CROSSED, ["z"]))
    bounds = {point.plan.lower_bound for point in found.points}
    assert len(bounds) == 1
    assert 2.0 <= bounds.pop() <= 3.0  # B needs 3 on x, A 2 on y


def test_sets_are_modules_stretches_and_single_units():
    sets = {tuple(each.tolist()) for each in unit_sets(CHAINS)}
    assert {(0, 1), (2, 3), (4, 5), (6, 7), tuple(range(8))} <= sets
    assert {(unit,) for unit in range(8)} <= sets
    assert sorted(unit_order(CHAINS).tolist()) == list(range(8))


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), max_size=9), st.integers(2, 5))
def test_thinning_keeps_the_ends(pairs, count):
    nothing = np.zeros(0, dtype=np.int32)
    states = [State(nothing, nothing, value, moved) for value, moved in pairs]
    states.sort(key=lambda state: state.moved)
    kept = thinned(states, count)
    assert len(kept) == min(count, len(states))
    assert kept[:1] == states[:1]
    assert kept[-1:] == states[-1:]
