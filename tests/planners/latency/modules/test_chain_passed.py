"""Chains of modules but for edges that pass by some: what is proved and planned of the whole."""

import math
import string

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.passing import without_passing
from placewright.budget import Budget
from placewright.formulations.latency.incumbent import timed
from placewright.graph import GraphBuilder
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import Method
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.modules.chain_passed import PassedChain
from placewright.planners.latency.modules.milp_split import is_chain, is_chain_but_for_passing
from placewright.portfolio.members import Member
from placewright.solving import solve
from placewright.verify import verify
from tests.analysis.test_modules import problem_of
from tests.naive import shortest_makespan
from tests.strategies import problems, tight

LETTERS = string.ascii_lowercase[:25]
DIAMONDS = [LETTERS[at : at + 4] for at in range(0, 22, 3)]
KEPT = [letter + letter.upper() for letter in LETTERS]
SIZES = st.sampled_from([0.0, 1.0, 2.0])


@st.composite
def training_graphs(draw):
    """Cut ops with one or two ops between two of them, and edges that pass by cut ops."""
    builder = GraphBuilder("training")
    ops, last = [], builder.add_op("cut0", "op")
    for number, width in enumerate(draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)), 1):
        middle = [builder.add_op(f"op{number}.{k}", "op") for k in range(width)]
        end = builder.add_op(f"cut{number}", "op")
        for op in middle:
            builder.connect(builder.add_tensor(last, draw(SIZES)), op)
            builder.connect(builder.add_tensor(op, draw(SIZES)), end)
        ops.append(middle)
        last = end
    for forward in ops[0]:
        builder.connect(builder.add_tensor(forward, draw(SIZES)), draw(st.sampled_from(ops[1])))
    return builder.build()


def drawn(max_devices=2, memory=False):
    return problems(graph=training_graphs(), max_devices=max_devices, memory=memory)


def test_a_trained_chain_is_one_but_for_what_its_forward_modules_keep():
    """Eight modules each way, and what each op reads of its twin."""
    modules = [f"{a}{b} {a}{c} {b}{d} {c}{d}" for a, b, c, d in DIAMONDS]
    forward = problem_of(" ".join(modules))
    assert is_chain(forward) and not is_chain_but_for_passing(forward)
    problem = problem_of(" ".join([*modules, *(each.swapcase()[::-1] for each in modules), *KEPT]))
    assert is_chain_but_for_passing(problem) and not is_chain(problem)
    lead = Member("a", "prove", passed=True)
    other = Member("a", "prove", passed=False)
    assert lead.takes(problem, "whole") and not other.takes(problem, "whole")
    assert other.takes(forward, "chain") and not lead.takes(forward, "chain")


@settings(max_examples=40, deadline=None)
@given(drawn(), st.booleans())
def test_bound_and_devices_hold(problem, has_start):
    check(problem, has_start)


@settings(max_examples=40, deadline=None)
@given(tight(drawn()), st.booleans())
def test_bound_and_devices_hold_where_memory_is_short(problem, has_start):
    check(problem, has_start)


def check(problem, has_start):
    best = shortest_makespan(problem)
    assume(math.isfinite(best))
    start = first_incumbent(problem, 0, None, Budget())[0] if has_start else None
    passed = PassedChain(problem, Solvers(Method(), 1))
    for _ in passed.steps(Budget(20.0), start.placement if start else None):
        assert passed.bound <= best * (1 + 1e-9)
    if not problem.may_overflow:  # the chain's own optimum
        assert passed.bound == pytest.approx(shortest_makespan(without_passing(problem).problem))
        assert timed(problem, passed.placement).value >= best * (1 - 1e-9)


@settings(max_examples=15, deadline=None)
@given(drawn(memory=True), st.sampled_from([{}, {"processes": "1"}, {"nodes": "200"}]))
def test_plans_of_milp_split_are_judged(problem, options):
    best = shortest_makespan(problem)
    assume(math.isfinite(best))
    plan = solve(problem, "milp-split", planner_options=options, time_limit=20.0)
    verify(plan).raise_if_failed()
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert plan.value >= best * (1 - 1e-9)


@settings(max_examples=5, deadline=None)
@given(drawn())
def test_out_of_time_nothing_is_claimed(problem):
    passed = PassedChain(problem, Solvers(Method(), 1))
    for _ in passed.steps(Budget(0.0), Placement(np.zeros(problem.op_count, dtype=int))):
        pass
    assert passed.bound <= shortest_makespan(problem) * (1 + 1e-9)
