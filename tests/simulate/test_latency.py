"""Schedules from placements."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.plan import Placement, Plan
from placewright.simulate.latency import schedule_placement, sequence_of, time_placement
from placewright.simulate.peak import peak_memory
from placewright.verify import verify
from tests import naive
from tests.strategies import placements, problems, sequences


def judged(problem, placement, schedule):
    plan = Plan(problem, Placement(placement.device), schedule, schedule.makespan, 0.0, "", "test")
    return verify(plan)


@given(st.data())
def test_any_sequence_gives_a_schedule_the_judge_accepts(data):
    problem = data.draw(problems(memory=False))
    placement = Placement(data.draw(placements(problem)), data.draw(sequences(problem)))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), placement.device]).all())
    schedule = time_placement(problem, placement)
    assert judged(problem, placement, schedule).violations == ()


@given(st.data())
def test_a_bare_placement_is_scheduled_so_that_the_judge_accepts_it(data):
    problem = data.draw(problems(memory=False))
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    placement = schedule_placement(problem, device)
    assert (placement.device == device).all()
    schedule = time_placement(problem, placement)
    assert judged(problem, placement, schedule).violations == ()


@given(st.data())
def test_timing_a_schedule_in_the_order_of_its_starts_makes_nothing_later(data):
    """So every semi-active schedule has a sequence (ops of no length may even move forward)."""
    problem = data.draw(problems(memory=False))
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    starts, finishes, sent, there = naive.time_sequence(
        problem, device, data.draw(sequences(problem)).tolist()
    )
    ops, edges = range(problem.op_count), range(problem.edge_count)
    op_finish = np.array([finishes[op] for op in ops])
    sequence = sequence_of(
        problem,
        np.array([starts[op] for op in ops]),
        op_finish,
        np.array([sent.get(e, -1.0) for e in edges]),
        np.array([there.get(e, -1.0) for e in edges]),
    )
    again = time_placement(problem, Placement(device, sequence))
    assert (again.op_finish <= op_finish).all()


@given(st.data())
def test_peak_memory_is_what_its_twin_and_the_judge_count(data):
    problem = data.draw(problems(memory=False))
    placement = Placement(data.draw(placements(problem)), data.draw(sequences(problem)))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), placement.device]).all())
    schedule = time_placement(problem, placement)
    peaks = peak_memory(problem, placement, schedule)
    assert np.allclose(peaks, naive.peak_memory(problem, placement.device, schedule))
    if problem.options.memory == "peak":
        assert np.allclose(peaks, judged(problem, placement, schedule).device_memory)
