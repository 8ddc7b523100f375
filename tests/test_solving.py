"""From a problem and a planner to a verified plan, and several planners side by side."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import assume, given

from placewright import planners
from placewright.bounds import Bound
from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import (
    FormatError,
    InfeasibleError,
    InputError,
    OptionError,
    VerificationError,
)
from placewright.graph import Graph, GraphBuilder
from placewright.importers import load
from placewright.kernels import compiling
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.planners.base import LatencyPlanner, NoRoomError, Proposal
from placewright.planners.latency.construct.list_scheduling import Heft
from placewright.planners.latency.construct.simple import MTopo
from placewright.planning import improve, make_problem, plan
from placewright.problem import Problem
from placewright.report.html.writing import report
from placewright.report.remarks import remarks
from placewright.serving.planning import plan_request
from placewright.solving import best_of, compare, no_plan, quick_planners, solve
from placewright.verify import verify
from placewright.whatif.explain.explaining import explain
from placewright.whatif.replan import replan
from placewright.whatif.sensitivities import sensitivities
from tests.builders import batches_of_four, chain
from tests.strategies import problems


class Fixed(LatencyPlanner):
    """A planner of the user's own, with an answer known beforehand."""

    name = "fixed"

    def __init__(self, device: list[int], bound: float = 0.0, refusal: str | None = None) -> None:
        self.proposal = Proposal(Placement(np.array(device)), bound, "its own proof")
        self.refusal = refusal
        self.asked: list[Problem] = []

    def supports(self, problem: Problem) -> str | None:
        return self.refusal

    def plan(self, problem: Problem, *_: Any) -> Proposal:
        self.asked.append(problem)
        return self.proposal


# -- solve ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposal", "message"),
    [
        (None, "gave a NoneType; give a Proposal of a Placement"),
        (Proposal(None), "gave a NoneType; give a Proposal"),  # type: ignore[arg-type]
        (np.zeros(2), "gave a ndarray; give a Proposal"),
        (Proposal(Placement([0])), r"has devices of shape \(1,\); give one of shape \(2,\)"),
        (Proposal(Placement([0, 2])), "names device 2; devices go from 0 to 1"),
        (Proposal(Placement([0, -1])), "names device -1; devices go from 0 to 1"),
        (Proposal(Placement([0, 1], [0, 1])), "has a sequence that does not name each op and"),
        (Proposal(Placement([0, 1], [0, -1, 9])), "has a sequence that does not name each op"),
        (Proposal(Placement([0, 1], replicas=((1, 3),))), "names device 3; devices go from 0"),
    ],
)
@pytest.mark.parametrize("memory", ["resident", "peak"])
def test_what_a_planner_of_ones_own_gives_must_be_of_the_problem(proposal, message, memory):
    problem = chain([1, 1], [9, 9], memory=memory)
    own = Fixed([0, 0])
    own.proposal = proposal
    with pytest.raises(VerificationError, match=f"planner 'fixed' {message}"):
        solve(problem, own)


@pytest.mark.parametrize("sequence", [[0], [0, 0], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
def test_a_sequence_for_batches_must_be_of_its_batches(sequence, monkeypatch):
    problem = batches_of_four()
    found = solve(problem, "heft").placement
    own = Fixed([])
    own.proposal = Proposal(Placement(found.device, sequence))
    monkeypatch.setattr(Fixed, "objective", "batch-throughput", raising=False)
    with pytest.raises(VerificationError, match="does not name each batch and each edge of one"):
        solve(problem, own)


def test_the_name_of_a_planner_of_ones_own_must_be_text(monkeypatch):
    monkeypatch.setattr(Fixed, "name", 3)
    with pytest.raises(OptionError, match="the planner's name is 3; give text"):
        solve(chain([1, 1], [9, 9]), Fixed([0, 0]))


def test_a_plan_carries_its_provenance():
    found = solve(chain([1, 1], [9, 9]), "heft", seed=5, source="here")
    assert (found.planner, found.seed, found.source, found.planner_options) == (
        "heft", 5, "here", {},
    )  # fmt: skip
    assert found.seconds > 0
    assert found.value == found.schedule.makespan == 2


def test_a_planner_of_ones_own_is_asked_timed_and_judged():
    found = solve(chain([1, 1, 1], [9, 9]), Fixed([0, 1, 0]))
    assert found.planner == "fixed"
    assert found.value == 1 + 0.5 + 2 + 0.5 + 1
    assert verify(found).ok


def test_a_proved_bound_better_than_ours_is_kept_with_its_proof():
    found = solve(chain([1, 1], [9, 9]), Fixed([0, 1], bound=2.25))
    assert (found.lower_bound, found.bound_source) == (2.25, "its own proof")


def test_a_proved_bound_worse_than_ours_is_not():
    found = solve(chain([1, 1], [9, 9]), Fixed([0, 1], bound=0.25))
    assert found.lower_bound == pytest.approx(2.0)
    assert found.bound_source == "critical path"


def test_a_bound_given_is_not_computed_again(monkeypatch):
    monkeypatch.setattr(
        "placewright.bounds.latency.paths.lower_bound", lambda _: pytest.fail("it was")
    )
    found = solve(chain([1, 1], [9, 9]), "heft", bound=Bound(1.5, "given"))
    assert (found.lower_bound, found.bound_source) == (1.5, "given")


@pytest.mark.parametrize(
    ("device", "bound", "message"),
    [
        ([0, 0, 0], 0.0, "device 'x' needs 3 B and has 2 B"),
        ([0, 1, 1], 99.0, "the lower bound 99.000 s is above the value"),
    ],
)
def test_a_wrong_answer_of_a_planner_never_leaves_solve(device, bound, message):
    with pytest.raises(VerificationError, match=message):
        solve(chain([1, 1, 1], [2, 2]), Fixed(device, bound))


def test_a_planner_that_does_not_support_a_problem_says_why():
    message = "planner 'fixed' cannot take this problem: it is Tuesday"
    with pytest.raises(OptionError, match=message):
        solve(chain([1], [9, 9]), Fixed([0], refusal="it is Tuesday"))


def test_an_infeasible_problem_is_refused_before_the_planner_is_asked():
    planner = Fixed([0])
    with pytest.raises(InfeasibleError, match=r"fits on no device"):
        solve(chain([10], [9, 9]), planner)
    assert planner.asked == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hefty", {}, "no planner 'hefty'; did you mean 'heft'"),
        ("HEFT", {}, "no planner 'HEFT'; did you mean 'heft'"),
        ("xyz", {}, "no planner 'xyz'; there are auto, single-device, "),
        ("heft", {"speed": "9"}, "planner 'heft' has no option 'speed'; it has: none"),
    ],
)
def test_a_planner_or_option_that_does_not_exist_is_refused(name, options, message):
    with pytest.raises(OptionError, match=message):
        solve(chain([1], [9, 9]), name, planner_options=options)


# -- room: a large unit that comes late -----------------------------------------------------------


def test_a_large_op_that_comes_late_gets_its_room_first():
    """met fills x with 3 + 5 and y with 5, so 7 has no room: 10 − 8 = 2 and 10 − 5 = 5."""
    problem = chain([3, 5, 5, 7], [10, 10])
    with pytest.raises(NoRoomError, match=r"for op 'o3': it needs 7 B \(the most that is left"):
        planners.create("met").plan(problem, None, 0, no_progress)
    found = solve(problem, "met")
    assert sorted(found.device_memory.tolist()) == [10, 10]
    assert verify(found).ok


def test_every_list_planner_makes_room_that_way():
    for name in ("met", "m-topo", "greedy", "heft", "m-etf"):
        assert sorted(solve(chain([3, 5, 5, 7], [10, 10]), name).device_memory) == [10, 10]


def test_a_sum_that_is_rounded_up_does_not_make_it_too_large():
    """0.1 + 0.2 is more than 0.3 in floating point."""
    found = solve(chain([0.1, 0.2], [0.3, 0.0]), "met")
    assert verify(found).ok


def test_what_cannot_be_packed_at_all_is_proved():
    with pytest.raises(InfeasibleError, match=r"no placement .* fits .* as is proved"):
        solve(chain([4, 4, 4, 7], [10, 10]), "met")


def test_pinned_ops_keep_their_room():
    problem = chain([3, 5, 5, 7], [10, 10]).with_pins({0: 1})
    found = solve(problem, "met")
    assert found.placement.device[0] == 1
    assert found.device_memory.tolist() == [10, 10]


# -- peak: room for tensors besides ---------------------------------------------------------------


def test_what_does_not_fit_less_memory_is_not_said_of_all_of_it():
    """Ops keep 9 of 10 bytes, tensors take 3 more: `single-device` is asked with less than 10."""
    problem = chain([4, 4, 1], [10, 10], tensor_bytes=3.0, memory="peak")
    with pytest.raises(InfeasibleError, match="-device' found no placement whose peak memory fits"):
        solve(problem, "single-device")


def test_memory_is_held_back_until_the_peak_fits():
    """All on x keeps 9 of 10 bytes, and its tensors of 3 bytes take it to 15."""
    resident = chain([4, 4, 1], [10, 20], tensor_bytes=3.0)
    peak = chain([4, 4, 1], [10, 20], tensor_bytes=3.0, memory="peak")
    assert solve(resident, "met").placement.device.tolist() == [0, 0, 0]
    found = solve(peak, "met")
    assert 1 in found.placement.device
    assert verify(found).device_memory[0] <= 10


def test_the_planner_is_asked_again_with_less_memory_each_time():
    planner = Fixed([0, 0, 0])
    with pytest.raises(InfeasibleError, match="'fixed' found no placement whose peak memory fits"):
        solve(chain([4, 4, 1], [10, 20], tensor_bytes=3.0, memory="peak"), planner)
    offered = [problem.device_memory[0] for problem in planner.asked]
    assert offered[0] == 10
    assert all(later < earlier or earlier == 0 for earlier, later in pairwise(offered))
    assert min(offered) >= 0


def test_a_bound_proved_with_memory_held_back_is_not_one_of_the_whole_problem():
    """The second answer splits the chain; what it proves holds under less memory only."""

    class Learning(Fixed):
        def plan(self, problem: Problem, *more: Any) -> Proposal:
            super().plan(problem, *more)
            if len(self.asked) == 1:
                return Proposal(Placement(np.array([0, 0, 0])))
            return Proposal(Placement(np.array([0, 1, 1])), 5.5, "less memory")

    problem = chain([4, 4, 1], [10, 20], tensor_bytes=3.0, memory="peak")
    found = solve(problem, Learning([]))
    assert found.placement.device.tolist() == [0, 1, 1]
    assert found.bound_source != "less memory"


# -- compare -------------------------------------------------------------------------------------


@given(problems(max_ops=8))
def test_the_best_of_a_comparison_is_its_least_value(problem):
    try:
        lines = compare(problem)
    except InfeasibleError:
        assume(False)
    assert [line.planner for line in lines] == quick_planners(problem)
    assert all((line.plan is None) == bool(line.error) for line in lines)
    plans = [line.plan for line in lines if line.plan]
    assume(plans)
    assert best_of(lines).value == min(found.value for found in plans)
    assert len({(found.lower_bound, found.bound_source) for found in plans}) == 1


def test_progress_goes_from_nothing_to_all():
    seen: list[tuple[str, float]] = []
    problem = chain([1, 1], [9, 9])
    compare(problem, ["met", "heft"], on_progress=lambda what, done: seen.append((what, done)))
    assert seen == [("met", 0.0), ("heft", 0.5), ("done", 1.0)]


def test_a_planner_without_a_plan_is_a_line_with_its_reason():
    lines = compare(chain([6, 6], [10, 10]), ["single-device", "met"])
    assert lines[0].plan is None
    assert "no device supports every op and has the 12 B they need" in lines[0].error
    assert lines[1].plan is not None


def test_no_plan_at_all_is_infeasible_with_every_reason():
    with pytest.raises(InfeasibleError, match=r"no planner found a plan: planner 'single-device'"):
        best_of(compare(chain([6, 6], [10, 10]), ["single-device"]))


THREE_IN_TWICE_ONE_AND_A_HALF = chain([2.0, 2.0, 2.0], [3.0, 3.0])


def test_what_keeps_many_planners_from_a_plan_is_said_once():
    names = ["met", "memory-fill", "heft", "greedy"]
    with pytest.raises(InfeasibleError) as caught:
        best_of(compare(THREE_IN_TWICE_ONE_AND_A_HALF, names))
    assert str(caught.value) == (
        "none of 4 planners found a plan: no placement of the ops, those together that must be, "
        "fits the devices' memory, as is proved; give the devices more memory"
    )


def test_other_reasons_stand_beside_it_with_those_who_have_them():
    with pytest.raises(InfeasibleError) as caught:
        best_of(compare(THREE_IN_TWICE_ONE_AND_A_HALF))
    count = len(quick_planners(THREE_IN_TWICE_ONE_AND_A_HALF))
    assert str(caught.value) == (
        f"none of {count} planners found a plan: no placement of the ops, those together that must "
        f"be, fits the devices' memory, as is proved (memory-fill, met and {count - 3} more); no "
        "device supports every op and has the 6 B they need (single-device); give the devices more "
        "memory"
    )


def test_planners_for_throughput_have_one_word_for_what_does_not_fit():
    problem = replace(THREE_IN_TWICE_ONE_AND_A_HALF, options=Options("throughput"))
    with pytest.raises(InfeasibleError, match=r"found no split that fits the devices \(greedy, "):
        best_of(compare(problem))


@pytest.mark.parametrize(
    ("reasons", "sentence"),
    [
        ({}, "no planner found a plan: time was up"),
        (
            {"a": "planner 'a': no (9 B); wait"},
            "no planner found a plan: planner 'a': no (9 B); wait",
        ),
        ({"a": "no", "b": "planner 'b' no"}, "none of 2 planners found a plan: no"),
        ({"a": "x; y", "b": "z"}, "none of 2 planners found a plan: x (a); z (b); y"),
        (
            {"a": "two\nlines", "b": "one"},
            "none of 2 planners found a plan: two\nlines (a); one (b)",
        ),
        ({"a": "f(x) (is 1)", "b": "f(x) (is 2)"}, "none of 2 planners found a plan: f(x)"),
    ],
)
def test_reasons_are_put_together(reasons, sentence):
    assert str(no_plan(reasons)) == sentence


def test_an_unknown_planner_is_refused_before_any_is_asked(monkeypatch):
    monkeypatch.setattr("placewright.solving.solve", lambda *_, **__: pytest.fail("it was asked"))
    with pytest.raises(OptionError, match="no planner 'nope'"):
        compare(chain([1], [9, 9]), ["heft", "nope"])


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while m-topo works."""

    def plan(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placewright.planners.latency.construct.simple.MTopo.plan", plan)


def test_an_interruption_keeps_the_plans_there_are_and_starts_no_other(interrupted):
    lines = compare(chain([1, 1], [9, 9]), ["met", "m-topo", "heft"])
    assert [(line.planner, line.plan is None, line.error) for line in lines] == [
        ("met", False, ""),
        ("m-topo", True, "interrupted"),
        ("heft", True, "interrupted"),
    ]
    assert best_of(lines).planner == "met"


def test_a_planner_that_stops_early_is_the_last_one(monkeypatch):
    whole = MTopo.plan

    def plan(*args: Any) -> Any:
        with suppress(KeyboardInterrupt):  # what was found so far is the answer
            signal.raise_signal(signal.SIGINT)
        return whole(*args)

    monkeypatch.setattr(MTopo, "plan", plan)
    lines = compare(chain([1, 1], [9, 9]), ["m-topo", "met"])
    assert [(line.planner, line.plan is None, line.error) for line in lines] == [
        ("m-topo", False, ""),
        ("met", True, "interrupted"),
    ]


def test_an_interruption_before_there_is_a_plan_interrupts(interrupted):
    with pytest.raises(KeyboardInterrupt):
        compare(chain([6, 6], [10, 10]), ["single-device", "m-topo", "heft"])


def test_with_no_time_at_all_there_is_still_a_plan():
    lines = compare(chain([1, 1], [9, 9]), ["met", "m-topo", "heft"], time_limit=0.0)
    assert lines[0].plan is not None
    assert [line.error for line in lines[1:]] == ["no time was left"] * 2


def test_with_no_time_at_all_planners_are_asked_until_one_has_a_plan():
    problem = chain([6, 6], [10, 10])
    lines = compare(problem, ["single-device", "met", "heft"], time_limit=0.0)
    assert [line.plan is None for line in lines] == [True, False, True]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which budgets go: its one entry, which a test moves on."""
    now = [0.0]

    class Counted(Budget):
        left = property(lambda budget: budget.seconds - now[0])

    monkeypatch.setattr("placewright.budget.Budget", Counted)
    return now


def shares(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, names: list[str], used: dict[str, float]
) -> dict[str, float]:
    """Planner → seconds it was given of 12; it uses as many as `used` says, or all."""
    given: dict[str, float] = {}

    def asked(problem: Problem, name: str, *, time_limit: float, **_: Any) -> Any:
        given[name] = time_limit
        clock[0] += used.get(name, time_limit)
        return found

    found = solve(chain([1, 1], [9, 9]), "met")
    monkeypatch.setattr("placewright.solving.solve", asked)
    lines = compare(chain([1, 1], [9, 9]), names, time_limit=12.0)
    assert [(line.planner, line.error) for line in lines] == [(name, "") for name in names]
    return given


SEARCHES = ["annealing", "one-plus-one-ea", "local-search", "lns"]


def test_planners_that_use_all_they_are_given_share_the_limit_evenly(clock, monkeypatch):
    given = shares(clock, monkeypatch, SEARCHES, {})
    assert given == dict.fromkeys(SEARCHES, 3.0)
    assert clock == [12.0]


def test_what_quick_planners_leave_goes_to_the_others_whatever_their_order(clock, monkeypatch):
    names = ["annealing", "met", "lns", "heft"]
    given = shares(clock, monkeypatch, names, {"met": 1.0, "heft": 1.0})
    assert given == pytest.approx({"met": 3.0, "heft": 11 / 3, "annealing": 5.0, "lns": 5.0})
    assert list(given) == ["met", "heft", "annealing", "lns"]


def test_what_one_planner_compiles_is_not_taken_from_the_others(clock, monkeypatch):
    @contextmanager
    def compiling() -> Iterator[Callable[[], float]]:
        yield lambda: 40.0 if clock[0] else 0.0

    monkeypatch.setattr("placewright.kernels.compiling", compiling)
    given = shares(clock, monkeypatch, ["annealing", "lns"], {"annealing": 46.0})
    assert given == {"annealing": 6.0, "lns": 6.0}


def test_compiling_is_measured():
    with compiling() as seconds:
        assert seconds() == 0.0
        numba.njit(lambda x: x + 1)(1)
        assert (seconds() > 0.0) == (not numba.config.DISABLE_JIT)


def test_searches_beside_one_another_each_have_a_plan():
    problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090")
    lines = compare(problem, SEARCHES, time_limit=2.0)
    assert [line.planner for line in lines if line.plan] == SEARCHES


def test_solve_with_no_time_gives_what_a_planner_that_cannot_stop_early_has():
    assert solve(chain([1, 1], [9, 9]), "heft", time_limit=0.0).value == 2


# -- plan and make_problem -----------------------------------------------------------------------


def graph() -> Graph:
    builder = GraphBuilder("two")
    first = builder.add_op("first", "op", parameter_bytes=3.0)
    builder.add_op("second", "op", [builder.add_tensor(first, 1.0)], parameter_bytes=4.0)
    builder.times["fast"], builder.times["slow"] = [1.0, 2.0], [2.0, math.inf]
    return builder.build()


CLUSTER = Cluster(
    "pair",
    devices=(Device("x", "fast", memory=5.0), Device("y", "slow", memory=5.0)),
    links=(Link("x", "y", bandwidth=2.0, latency=0.25),),
)


def test_plan_takes_a_graph_and_a_cluster():
    found = plan(graph(), CLUSTER, planner_options={"processes": "1"})  # no others to start
    assert found.device_of() == {"first": "y", "second": "x"}
    assert found.value == 2 + 0.25 + 0.5 + 2
    assert (found.source, found.problem.name) == ("two", "two on pair")


def test_plan_takes_a_problem_as_it_is():
    problem = chain([1, 1], [9, 9], contention="port")
    assert plan(problem, planner="met").problem is problem


@pytest.mark.parametrize(
    "more", [{"cluster": CLUSTER}, {"contention": "port"}, {"pinned": {"o0": "x"}}]
)
def test_what_a_problem_has_already_cannot_be_given(more):
    with pytest.raises(OptionError, match="a Problem has its devices and options already"):
        plan(chain([1], [9, 9]), **more)


def test_a_graph_needs_a_cluster():
    with pytest.raises(InputError, match=r"two has no devices of its own; name a cluster"):
        plan(graph())


def test_auto_takes_its_own_options_alone():
    with pytest.raises(OptionError, match="planner 'auto' has no option 'a'"):
        plan(graph(), CLUSTER, planner_options={"a": "1"})


def test_options_left_out_are_the_defaults():
    problem, name = make_problem(graph(), CLUSTER, {"contention": "port", "memory": None})
    assert problem.options == Options(contention="port")
    assert name == "two"


def test_an_optimizer_is_refused_where_nothing_is_trained():
    with pytest.raises(OptionError, match="optimizer sgd is about training, and two has no backw"):
        make_problem(graph(), CLUSTER, costs=CostOptions(optimizer="sgd"))


def test_pins_are_part_of_the_problem():
    problem, _ = make_problem(graph(), CLUSTER, pinned={"first": "x"})
    assert problem.op_pinned.tolist() == [0, -1]
    with pytest.raises(InfeasibleError, match="the devices that may be used have 5 B in all"):
        plan(graph(), CLUSTER, planner="met", pinned={"first": "x"})


def test_a_planner_is_asked_whether_it_takes_the_coarser_problem():
    problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090")

    class Small(Heft):
        def supports(self, problem):
            return None if problem.op_count < 40 else "too many ops"

    assert problem.op_count >= 40
    with pytest.raises(OptionError, match="too many ops"):
        solve(problem, Small())
    assert verify(solve(problem, Small(), coarsening="modules")).ok


@pytest.mark.parametrize("planner", ["heft", "annealing", "lns", "auto"])
def test_a_seed_below_zero_is_refused_whatever_the_planner(planner):
    problem = chain([1, 1], [9, 9])
    for ask in (
        lambda: solve(problem, planner, seed=-1),
        lambda: plan(problem, planner=planner, seed=-1),
        lambda: compare(problem, [planner], seed=-1),
    ):
        with pytest.raises(OptionError, match="seed is -1; give a whole number from 0"):
            ask()


@pytest.mark.parametrize("seed", [1.5, "7", None])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    problem = chain([1, 1], [9, 9])
    for ask in (
        lambda: solve(problem, "heft", seed=seed),
        lambda: plan(problem, planner="auto", seed=seed),
        lambda: compare(problem, ["heft"], seed=seed),
    ):
        with pytest.raises(OptionError, match=f"seed is {seed!r}; give a whole number from 0"):
            ask()


@pytest.mark.parametrize("planner", ["annealing", "auto"])
def test_what_is_given_as_numbers_can_be_kept_in_a_file(planner, tmp_path):
    given = {"seed": np.int64(3), "planner_options": {"iterations": np.int64(5)}, "time_limit": 1}
    found = plan(chain([1, 1], [9, 9]), planner=planner, **given)
    found.save(tmp_path / "plan.json")
    kept = Plan.load(tmp_path / "plan.json")
    assert (kept.seed, kept.planner_options) == (found.seed, found.planner_options)
    assert planner == "auto" or kept.planner_options == {"iterations": "5"}


def test_one_planner_may_be_compared_by_its_name():
    (line,) = compare(chain([1, 1], [9, 9]), "heft")
    assert line.planner == "heft"
    assert line.plan is not None


def test_the_judge_takes_plan_files(tmp_path):
    plan(chain([1, 1], [9, 9]), planner="heft").save(tmp_path / "plan.json")
    assert verify(tmp_path / "plan.json").ok
    assert verify(str(tmp_path / "plan.json")).ok
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(FormatError, match=r"no.json"):
        verify(tmp_path / "no.json")


@pytest.mark.parametrize("planner", ["heft", "annealing", "auto"])
@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_time_limit_that_is_none_is_refused_whatever_the_planner(planner, limit):
    problem = chain([1, 1], [9, 9])
    for ask in (
        lambda: solve(problem, planner, time_limit=limit),
        lambda: plan(problem, planner=planner, time_limit=limit),
        lambda: compare(problem, [planner], time_limit=limit),
        lambda: replan(solve(problem, "heft"), problem, planner=planner, time_limit=limit),
    ):
        with pytest.raises(OptionError, match=f"the time limit is {limit}; give seconds of 0"):
            ask()


def test_a_plan_and_what_it_is_of_print_in_a_line():
    found = plan("zoo:gpt2", "2x3090", planner="heft")
    said = repr(found)
    assert len(said) < 200 and "\n" not in said
    assert repr(found.problem) in said and "by heft" in said
    assert f"{found.problem.op_count} ops, 2 devices, latency" in said
    assert repr(load("zoo:gpt2").graph).startswith("<Graph gpt2: ")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"pinned": ["first=x"]}, "pinned is .*; give a mapping, as {'embedding': 'gpu0'}"),
        ({"planner_options": ["gap=0.1"]}, "planner_options is .*; give a mapping"),
        ({"costs": "adam"}, r"costs is 'adam'; give CostOptions\(\.\.\.\)"),
        ({"coarsening": None}, "coarsening is None; give its name, or 'none'"),
        ({"cluster": ["2x3090"]}, "cluster is .*; give a Cluster, a file or a preset's name"),
        ({"time_limit": "5"}, "the time limit is '5'; give seconds of 0 or more"),
        ({"time_limit": None}, "the time limit is None; give seconds of 0 or more"),
        ({"planner": None}, "planner is None; give the name of one, such as 'heft'"),
        ({"objective": ["latency"]}, "no objective '.*latency.*'; there are latency"),
        ({"training": "no"}, "training is 'no'; give True or False"),
        ({"on_event": 3}, "on_event is 3; give a function, or None"),
        ({"on_progress": 3, "planner": "heft"}, "on_progress is 3; give a function, or None"),
        ({"granularity": ["op"]}, "no granularity '.*op.*'; choose op, module, block"),
    ],
)
def test_a_mistake_of_type_is_told_in_a_sentence(asked, says):
    with pytest.raises(OptionError, match=says):
        plan(graph(), **{"cluster": CLUSTER, **asked})


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"problem": "zoo:gpt2"}, "problem is 'zoo:gpt2'; give what build_problem makes"),
        ({"planner": 3}, "planner is 3; give the name of one"),
        ({"coarsening": None}, "coarsening is None; give its name, or 'none'"),
        ({"planner_options": "gap=1"}, "planner_options is 'gap=1'; give a mapping"),
        ({"bound": 0.1}, r"bound is 0\.1; give a placewright\.bounds\.Bound, or None"),
        ({"on_lesson": 3}, "on_lesson is 3; give a function, or None"),
        ({"start": [0, 0]}, r"start is \[0, 0\]; give a Placement, such as that of a plan"),
        ({"start": Placement([0])}, r"start has devices of shape \(1,\); give one of shape \(2,\)"),
        ({"start": Placement([0, 7])}, "start names device 7; devices go from 0 to 1"),
        ({"start": Placement([-1, 0])}, "start names device -1; devices go from 0 to 1"),
    ],
)
def test_solve_says_what_it_takes(asked, says):
    with pytest.raises(OptionError, match=says):
        solve(**{"problem": chain([1, 1], [9, 9]), "planner": "annealing", **asked})


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda _: verify(None), "None is neither a Plan nor the path of its file; give one of"),
        (lambda _: improve(3), "3 is neither a Plan nor the path of its file"),
        (lambda found: verify(found.problem), "<Problem .* is neither a Plan nor the path of its"),
        (lambda found: plan(found.problem, warm_start=3), "3 is neither a Plan nor the path"),
        (lambda found: found.save(None), "None is no path; give the name of a file"),
        (lambda found: plan(found), "source is <Plan .*>; give a file, or text such as 'zoo:gpt2'"),
        (lambda _: load(None), "source is None; give a file, or text such as 'zoo:gpt2'"),
        (lambda _: load("zoo:gpt2", training="no"), "training is 'no'; give True or False"),
        (lambda _: CostOptions(profiles=3), "profiles is 3; give a file, 'user' or None"),
        (lambda _: load_cluster(CLUSTER), r"cluster is Cluster\(.*; give the name of a preset"),
        (lambda found: report(None, "x.html"), "plans is None; give a Plan, its file, or several"),
        (lambda found: report(found, None), "path is None; give the name of a file"),
        (lambda found: report(found, "x.html", run=3), "run is 3; give a file that"),
        (lambda found: sensitivities(found, "5"), "what_if is '5'; give seconds above 0"),
        (lambda found: explain(found, 3), "name is 3; give that of an op, a block, a module or a"),
        (lambda _: remarks(None), "None is neither a Plan nor the path of its file"),
        (lambda _: plan_request("zoo:gpt2", "2x3090", None), "mix is None; give text such as 'pr"),
        (lambda _: plan_request(None, "2x3090", "prompt=1,output=1"), "source is None; give text"),
        (lambda found: solve(found.problem, "heft", source=3), "source is 3; give text"),
        (lambda found: plan(found.problem, checkpoint=3), "checkpoint is 3; give the name of a"),
    ],
)
def test_what_is_given_something_else_says_what_it_takes(ask, says):
    with pytest.raises(InputError, match=says):
        ask(solve(chain([1, 1], [9, 9]), "heft"))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"problem": None}, "problem is None; give what build_problem makes"),
        ({"names": 3}, "names is 3; give a list of planners, or None"),
        ({"names": ["heft", None]}, "planner is None; give the name of one"),
    ],
)
def test_compare_says_what_it_takes(asked, says):
    with pytest.raises(OptionError, match=says):
        compare(**{"problem": chain([1, 1], [9, 9]), **asked})


def test_a_comparison_on_a_coarser_graph_that_there_is_not_is_refused_as_a_plan_is():
    problem = chain([1, 1], [9, 9])
    for ask in (lambda: compare(problem, coarsening="repeats"),
                lambda: solve(problem, "heft", coarsening="repeats")):  # fmt: skip
        with pytest.raises(OptionError, match="coarsening 'repeats' finds no block of ops"):
            ask()


@pytest.mark.parametrize(
    ("position", "value", "says"),
    [
        (0, "zoo:gpt2", r"takes load\(source\)\.graph, and was given 'zoo:gpt2'"),
        (1, "2x3090", r"takes load_cluster\(name\), and was given '2x3090'"),
        (2, {"contention": "port"}, r"takes Options\(\.\.\.\), and was given"),
        (3, "adam", r"takes CostOptions\(\.\.\.\), and was given"),
    ],
)
def test_build_problem_says_what_it_takes(position, value, says):
    given = [graph(), CLUSTER, Options(), CostOptions()]
    given[position] = value
    with pytest.raises(OptionError, match=says):
        build_problem(*given)


def test_build_problem_takes_no_text_for_a_truth_value():
    with pytest.raises(OptionError, match="together is 'no'; give True or False"):
        build_problem(graph(), CLUSTER, Options(), CostOptions(), together="no")
