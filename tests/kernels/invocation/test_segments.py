"""Segments of an order: the dynamic program finds what trying every cut finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.slots import accelerators
from placewright.kernels.invocation.segments import best_segments, random_order, shift_atom
from placewright.kernels.invocation.timing import latency, network_of
from placewright.planners.invocation.base import atoms_of, loosenings
from tests.naive.invocation import cheapest_split
from tests.strategies.invocation import invocation_problems


def drawn_order(atoms, seed):
    order = np.zeros(len(atoms.memory), dtype=np.int64)
    random_order(atoms, np.random.default_rng(seed), order)
    return order


def is_topological(atoms, order):
    place = {atom: k for k, atom in enumerate(order.tolist())}
    before = {
        (int(earlier), atom)
        for atom in place
        for earlier in atoms.before[atoms.before_offsets[atom] : atoms.before_offsets[atom + 1]]
    }
    return len(place) == len(order) and all(place[a] < place[b] for a, b in before)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_best_segments_are_the_cheapest_of_all_cuts(data):
    problem = data.draw(invocation_problems(max_ops=6, max_accelerators=3, max_subgraphs=1))
    atoms = atoms_of(problem)
    order = drawn_order(atoms, data.draw(st.integers(0, 5)))
    devices = accelerators(problem)
    ops_of = [
        atoms.ops[atoms.offsets[k] : atoms.offsets[k + 1]].tolist() for k in range(len(order))
    ]
    slots = np.zeros(problem.op_count, dtype=np.int64)
    flags = st.lists(st.booleans(), min_size=len(order) + 1, max_size=len(order) + 1)
    stops = np.array(data.draw(flags)) | data.draw(st.booleans())
    found = best_segments(network_of(problem), atoms, order, stops, devices, slots)
    naive = cheapest_split(
        problem, (ops_of, atoms.cpu_time), order.tolist(), devices.tolist(), stops.tolist()
    )
    assert found == pytest.approx(naive, rel=1e-9, abs=1e-9)
    if found < math.inf and not problem.is_backward.any():
        assert latency(problem, slots) <= found * (1 + 1e-9) + 1e-9


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_orders_stay_topological(data):
    problem = data.draw(invocation_problems(max_ops=10))
    variants = [atoms_of(problem), *(atoms_of(problem, units) for units in loosenings(problem))]
    for atoms in variants:
        order = drawn_order(atoms, 3)
        assert is_topological(atoms, order)
        rng = np.random.default_rng(4)
        for _ in range(5):
            shift_atom(atoms, rng, order)
            assert is_topological(atoms, order)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_loosened_units_leave_only_atoms_of_one_unit(data):
    problem = data.draw(invocation_problems(max_ops=10))
    for units in loosenings(problem)[:1]:
        atoms = atoms_of(problem, units)
        for k in range(len(atoms.memory)):
            ops = atoms.ops[atoms.offsets[k] : atoms.offsets[k + 1]]
            assert len(set(problem.op_unit[ops].tolist())) == 1
