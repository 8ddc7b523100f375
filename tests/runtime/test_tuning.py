"""Tuning keeps what was measured to be fastest, on machines that are simulated and on this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ExecutionError, OptionError
from placewright.plan import Plan
from placewright.runtime.results import RunReport
from placewright.runtime.tuning.tuning import Round, TuneOptions, Tuning, is_same, tune
from tests.runtime.layered import imported, layered, really, two_cpus
from tests.runtime.simulated import simulated_run

GRAPH = layered()
UNMEASURED = TuneOptions(planner="local-search", measure_first=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(tmp_path / "profiles.sqlite") as opened:
        yield opened


class Machine:
    """Runs plans by the clock of a problem that is not the planner's."""

    def __init__(self, slower: float) -> None:
        self.slower = slower
        self.ran: list[Plan] = []
        self.truth = None

    def __call__(self, plan: Plan) -> RunReport:
        if self.truth is None:
            self.truth = really(plan.problem, slower=self.slower)
        self.ran.append(plan)
        return simulated_run(plan, self.truth)


def scripted(*measured: float) -> Callable[[Plan], RunReport]:
    """Runs that take what the plan says, but are reported to take these times."""
    left = list(measured)

    def run(plan: Plan) -> RunReport:
        return replace(simulated_run(plan, plan.problem), measured=left.pop(0))

    return run


def moving(problem_of: Plan, factor: float) -> RunReport:
    """A run that makes the device of the most ops look `factor` times as slow."""
    device = int(problem_of.device_load.argmax())
    times = problem_of.problem.op_time.copy()
    times[:, device] *= factor
    return simulated_run(problem_of, replace(problem_of.problem, op_time=times))


# -- learning ----------------------------------------------------------------------------------


def test_the_error_shrinks_and_the_plan_gets_faster_on_a_machine_unlike_its_datasheet(
    store: ProfileStore,
) -> None:
    machine = Machine(slower=30.0)
    found = tune(imported(GRAPH), two_cpus(), store, replace(UNMEASURED, rounds=5), run=machine)
    first, best = found.rounds[0], found.best
    assert first.error > 0.5
    assert best.error < 0.05 < first.error
    assert best.measured < 0.5 * first.measured
    assert best.measured == min(each.measured for each in found.rounds)
    assert best.plan.source == "torch:models:layered"


def test_links_are_learnt_too(store: ProfileStore) -> None:
    machine = Machine(slower=1.0)
    rounds = tune(imported(GRAPH), two_cpus(), store, UNMEASURED, run=machine).rounds
    links = [each.plan.problem.link_seconds_per_byte[0, 1] for each in rounds]
    corrections = rounds[0].calibration.links
    assert len(corrections) == 1 and len(links) > 1
    assert links[1] == pytest.approx(1 / corrections[0].bandwidth)
    assert rounds[-1].error < rounds[0].error


@settings(max_examples=10, deadline=None)
@given(st.floats(0.2, 50.0), st.integers(1, 4))
def test_the_answer_is_never_measured_worse_than_the_first_plan(
    tmp_path_factory: pytest.TempPathFactory, slower: float, rounds: int
) -> None:
    with ProfileStore(tmp_path_factory.mktemp("tune") / "profiles.sqlite") as store:
        asked = replace(UNMEASURED, rounds=rounds)
        found = tune(imported(GRAPH), two_cpus(), store, asked, run=Machine(slower))
    assert found.best.measured <= found.rounds[0].measured
    assert 1 <= len(found.rounds) <= rounds


# -- when it ends ------------------------------------------------------------------------------


def test_a_plan_that_comes_out_again_ends_it_and_is_kept_with_the_newer_costs(
    store: ProfileStore,
) -> None:
    found = tune(imported(GRAPH), two_cpus(), store, UNMEASURED, run=scripted(1.0, 1.1, 1.2))
    assert [each.kept for each in found.rounds] == [True, True]
    assert is_same(*(each.plan for each in found.rounds))
    assert [each.measured for each in found.rounds] == [1.0, 1.0]  # the faster of its two runs
    assert found.best.number == 2


def test_a_slower_round_is_not_kept_and_two_of_them_end_it(store: ProfileStore) -> None:
    told: list[Round] = []
    left = [1.0, 2.0, 3.0, 0.5]

    def run(plan: Plan) -> RunReport:
        return replace(moving(plan, 20.0), measured=left.pop(0))

    asked = replace(UNMEASURED, rounds=9)
    found = tune(imported(GRAPH), two_cpus(), store, asked, run=run, on_round=told.append)
    assert [each.kept for each in found.rounds] == [True, False, False]
    assert found.best is found.rounds[0]
    assert told == list(found.rounds)
    assert left == [0.5]


def test_rounds_are_no_more_than_asked_for(store: ProfileStore) -> None:
    asked = replace(UNMEASURED, rounds=1)
    machine = Machine(slower=30.0)
    found = tune(imported(GRAPH), two_cpus(), store, asked, run=machine)
    assert len(found.rounds) == len(machine.ran) == 1
    assert store.groups()  # what it measured is kept for another time
    with pytest.raises(OptionError, match="rounds is 0; it must be at least 1"):
        TuneOptions(rounds=0)


def test_a_run_that_fails_ends_it_with_its_error(store: ProfileStore) -> None:
    def run(plan: Plan) -> RunReport:
        raise ExecutionError("rank 1 ended")

    with pytest.raises(ExecutionError, match="rank 1 ended"):
        tune(imported(GRAPH), two_cpus(), store, UNMEASURED, run=run)


def test_plans_are_the_same_where_devices_and_orders_are() -> None:
    from placewright.solving import solve
    from tests.runtime.test_comparison import two_devices

    plan = solve(two_devices(), "heft")
    later = replace(plan.outcome, op_start=plan.schedule.op_start + 1)
    assert is_same(plan, replace(plan, outcome=later, value=9.0))
    swapped = plan.schedule.op_start.copy()
    swapped[[1, 2]] = swapped[[2, 1]]
    assert not is_same(plan, replace(plan, outcome=replace(plan.outcome, op_start=swapped)))
    moved = replace(plan.placement, device=1 - plan.placement.device)
    assert not is_same(plan, replace(plan, placement=moved))


def test_the_best_of_a_tuning_is_the_last_that_was_kept(store: ProfileStore) -> None:
    found = tune(imported(GRAPH), two_cpus(), store, UNMEASURED, run=scripted(1.0, 0.9))
    first, second = found.rounds
    assert Tuning((first, replace(second, kept=False))).best is first
