"""Modules, cut ops and narrow cuts, against their definitions on small graphs."""

import os
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.analysis.modules import cut_positions, module_groups, split_modules
from placewright.coarsen.contraction import contract
from placewright.errors import OptionError
from placewright.graph import GraphBuilder
from placewright.planning import make_problem
from placewright.simulate.latency import schedule_placement, time_placement
from tests.naive.coarsen import (
    edge_pairs,
    naive_articulation_ops,
    naive_cut_ops,
    naive_edge_connected,
    naive_joining,
    naive_modules,
    naive_narrow_cuts,
)
from tests.strategies import placements, problems

SMALL = {"max_ops": 9, "max_devices": 2, "memory": False}


def problem_of(edges, cluster="2x3090"):
    """A problem with an op per letter in ``edges``, such as ``"ab bc"``, in order of first use."""
    builder = GraphBuilder("small")
    ops = {}
    for letter in edges.replace(" ", ""):
        if letter not in ops:
            ops[letter] = builder.add_op(letter, "op", flops=1e9)
    for pair in edges.split():
        builder.connect(builder.add_tensor(ops[pair[0]], 1e6), ops[pair[1]])
    return make_problem(builder.build(), cluster)[0]


def named(problem, ops):
    return "".join(problem.op_names[op] for op in ops)


def listed(problem, modules):
    return [named(problem, modules.ops(t)) for t in range(modules.count)]


def cut_ops(problem):
    return problem.topological_order[cut_positions(problem)]


# -- cut ops ---------------------------------------------------------------------------------------


@given(problem=problems(**SMALL))
def test_cut_ops_are_those_of_the_definition(problem):
    assert cut_ops(problem).tolist() == naive_cut_ops(problem)


@given(problem=problems(**SMALL))
def test_cut_ops_are_the_articulation_points_of_the_graph_with_one_input_and_output(problem):
    assert set(cut_ops(problem).tolist()) == naive_articulation_ops(problem)


@given(st.data())
def test_no_op_runs_beside_a_cut_op_in_any_schedule(data):
    problem = data.draw(problems(memory=False))
    device = data.draw(placements(problem))
    if np.isinf(problem.op_time[np.arange(problem.op_count), device]).any():
        return
    schedule = time_placement(problem, schedule_placement(problem, device))
    cuts = cut_ops(problem).tolist()
    for before, after in pairwise(cuts):
        assert schedule.op_finish[before] <= schedule.op_start[after] + 1e-9


# -- one channel -----------------------------------------------------------------------------------


@given(problem=problems(**SMALL))
def test_modules_of_one_channel_are_those_between_bridges_and_articulation_points(problem):
    assert split_modules(problem).op_module.tolist() == naive_modules(problem).tolist()


def test_a_module_begins_after_a_bridge_and_a_shared_cut_op_stays_with_what_it_ends():
    problem = problem_of("ab ac bd cd de ef eg fh gh hi hj ik jk")
    modules = split_modules(problem)
    assert listed(problem, modules) == ["abcd", "efgh", "ijk"]
    assert named(problem, modules.cut_op) == "dh"
    assert modules.is_exact


@given(problem=problems(**SMALL), channels=st.integers(1, 4))
def test_accessors_and_boundaries_say_what_the_partition_is(problem, channels):
    modules = split_modules(problem, channels)
    home, reader = modules.op_module[problem.edge_producer], modules.op_module[problem.consumers]
    assert (home <= reader).all()
    assert sorted(set(modules.op_module.tolist())) == list(range(modules.count))
    cuts = set(cut_ops(problem).tolist())
    for t in range(modules.count):
        assert set(modules.ops(t)) == set(np.flatnonzero(modules.op_module == t))
        assert set(modules.input_edges(t)) == set(np.flatnonzero((home < t) & (reader == t)))
    for t in range(modules.count - 1):
        over = modules.channel_edges(t)
        assert set(over) == set(np.flatnonzero((home <= t) & (reader > t)))
        ends = {(a, b) for a, b in edge_pairs(problem)
                if modules.op_module[a] <= t < modules.op_module[b]}  # fmt: skip
        cut = modules.cut_op[t]
        if cut < 0:
            assert len(ends) <= channels
            assert not any(set(np.flatnonzero(modules.op_module <= t)) == _prefix(problem, c)
                           for c in cuts)  # fmt: skip
        else:
            assert cut in cuts and {a for a, _ in ends} == {cut}
            assert _prefix(problem, cut) == set(np.flatnonzero(modules.op_module <= t))


def _prefix(problem, cut):
    """A cut op with all that comes before it."""
    found = {cut}
    for op in problem.topological_order[::-1].tolist():
        if any(a == op and b in found for a, b in edge_pairs(problem)):
            found.add(op)
    return found


# -- more channels ---------------------------------------------------------------------------------


@given(problem=problems(**SMALL), channels=st.integers(2, 4))
def test_narrow_cuts_are_those_found_among_all_downsets(problem, channels):
    block = split_modules(problem).op_module
    expected = naive_narrow_cuts(problem, block, channels)
    assert split_modules(problem, channels).op_module.tolist() == expected.tolist()


@given(problem=problems(max_ops=8, max_devices=1, memory=False), channels=st.integers(2, 3))
def test_narrow_cuts_part_no_two_ops_of_a_k_edge_connected_component(problem, channels):
    modules = split_modules(problem, channels)
    component = naive_edge_connected(problem, channels + 1)
    for t in np.flatnonzero(modules.cut_op < 0):
        before = modules.op_module <= t
        assert not set(component[before]) & set(component[~before])


GENERATED = [
    (generator, channels, dependency)
    for generator in ("er", "ws", "ba")
    for channels in (1, 2, 3, 4)
    for dependency in ("sdep", "wdep")
]


@pytest.mark.parametrize(("generator", "channels", "dependency"), GENERATED)
def test_modules_of_randomly_wired_networks_are_recovered(generator, channels, dependency):
    spec = f"zoo:rwnn?generator={generator}&channels={channels}&dependency={dependency}"
    problem, _ = make_problem(spec, "diviml")
    modules = split_modules(problem, channels)
    found = {frozenset(modules.ops(t).tolist()) for t in range(modules.count)}
    paths = np.array(problem.op_modules)
    for module in range(10):
        assert frozenset(np.flatnonzero(paths == f"modules.{module}").tolist()) in found
    assert modules.is_exact == (channels == 1)


def test_transformer_layers_are_modules_and_residual_adds_their_cut_ops():
    problem, _ = make_problem("zoo:gpt2", "2x3090")
    modules = split_modules(problem)
    ends = [problem.op_names[op] for op in modules.cut_op]
    for layer in range(12):
        assert f"blocks.{layer}.attention.residual" in ends
        assert f"blocks.{layer}.mlp.residual" in ends


# -- joining and groups ----------------------------------------------------------------------------


@given(problem=problems(**SMALL), channels=st.integers(1, 3), max_ops=st.integers(1, 6))
def test_neighbours_are_joined_so_that_the_fewest_edges_remain(problem, channels, max_ops):
    modules = split_modules(problem, channels)
    joined = split_modules(problem, channels, max_ops)

    def costs(split):
        return [
            1 if split.cut_op[t] >= 0 else len(split.channel_edges(t))
            for t in range(split.count - 1)
        ]

    sizes = np.bincount(modules.op_module).tolist()
    assert sum(costs(joined)) == naive_joining(sizes, costs(modules), max_ops)
    for t in range(joined.count):
        assert len(joined.ops(t)) <= max_ops or len(joined.ops(t)) in sizes


@given(
    problem=problems(),
    channels=st.integers(1, 4),
    max_ops=st.one_of(st.none(), st.integers(1, 6)),
)
def test_groups_contract_and_each_fits_a_device(problem, channels, max_ops):
    group = module_groups(problem, channels, max_ops)
    assert (group[problem.edge_producer] <= group[problem.consumers]).all()
    size = np.bincount(group)
    assert size.min() > 0 and size.max() <= (max_ops or problem.op_count)
    contracted = contract(problem, group).problem
    fits = np.isfinite(contracted.unit_time) & (
        contracted.unit_memory[:, None] <= problem.device_memory[None, :]
    )
    was = np.isfinite(problem.unit_time) & (
        problem.unit_memory[:, None] <= problem.device_memory[None, :]
    )
    if was.any(axis=1).all():
        assert fits.any(axis=1).all()


def test_a_module_too_large_for_every_device_is_split_with_more_channels():
    problem, _ = make_problem("zoo:rwnn?modules=1", "diviml")
    whole = module_groups(problem)
    half = replace(problem, device_memory=np.full(3, problem.op_memory.sum() / 2))
    assert len(set(module_groups(half).tolist())) > len(set(whole.tolist()))


def test_ops_pinned_to_different_devices_are_in_different_groups():
    problem = problem_of("ab ac bd cd")
    assert len(set(module_groups(problem).tolist())) == 1
    pinned = replace(problem, op_pinned=np.array([0, -1, 1, -1]))
    group = module_groups(pinned)
    assert group[0] != group[2]


def test_forward_and_backward_ops_are_in_different_groups():
    problem, _ = make_problem("zoo:gpt2?layers=1", "2x3090")
    training, _ = make_problem("zoo:gpt2?layers=1", "2x3090", training=True)
    group = module_groups(training, max_ops=20)
    sides = {(int(g), bool(b)) for g, b in zip(group, training.is_backward, strict=True)}
    assert len(sides) == len(set(group.tolist()))
    assert len(set(module_groups(problem).tolist())) < problem.op_count


@pytest.mark.parametrize(("given_", "message"), [
    ({"channels": 0}, "at least one channel"),
    ({"max_ops": 0}, "at least one op"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(given_, message):
    for call in (split_modules, module_groups):
        with pytest.raises(OptionError, match=message):
            call(problem_of("ab"), **given_)


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="times compiled code")
def test_fifty_thousand_ops_split_within_seconds():
    problem, _ = make_problem("zoo:rwnn?modules=900&ops=48&channels=4&dependency=wdep", "diviml")
    split_modules(problem_of("ab ac bd cd"), 2)  # compiles
    begun = time.perf_counter()
    assert split_modules(problem, 1).count > 1
    assert time.perf_counter() - begun < 20.0
    modules = split_modules(problem, 4)
    assert time.perf_counter() - begun < 60.0
    assert modules.count >= 900
