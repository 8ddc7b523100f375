"""Edges that pass by ops comparable with all others, against their definition."""

import numpy as np
from hypothesis import given, settings

from placewright.analysis.modules import cut_positions
from placewright.analysis.passing import comparable_with_all, passing_edges, without_passing
from placewright.simulate.latency import schedule_placement, time_placement
from tests.analysis.test_modules import problem_of
from tests.naive import shortest_makespan
from tests.naive.coarsen import naive_comparable_with_all, naive_passing
from tests.strategies import problems


def edges(problem, chosen):
    ends = zip(problem.edge_producer[chosen], problem.consumers[chosen], strict=True)
    return sorted("".join(problem.op_names[op] for op in pair) for pair in ends)


def cut_ops(problem):
    return "".join(problem.op_names[op] for op in problem.topological_order[cut_positions(problem)])


def test_what_a_training_graph_keeps_for_its_gradients_passes_by_what_comes_between():
    """a → (b, c) → d forward, D → (B, C) → A backward; each of these reads what its twin made."""
    problem = problem_of("ab ac bd cd dD DB DC BA CA aA bB cC")
    assert cut_ops(problem) == "aA"
    assert "".join(np.array(problem.op_names)[comparable_with_all(problem)]) == "adDA"
    assert edges(problem, passing_edges(problem)) == ["aA", "bB", "cC"]
    part = without_passing(problem)
    assert edges(part.problem, np.arange(part.problem.edge_count)) == edges(problem, part.edges)
    assert cut_ops(part.problem) == "adDA"


def test_an_edge_to_the_next_op_comparable_with_all_passes_by_none():
    problem = problem_of("ab bc cd")
    assert comparable_with_all(problem).all()
    assert not passing_edges(problem).any()


@given(problems(max_ops=9, max_devices=1, memory=False))
def test_both_are_what_their_definition_says(problem):
    assert comparable_with_all(problem).tolist() == naive_comparable_with_all(problem)
    assert passing_edges(problem).tolist() == naive_passing(problem)


@given(problems(max_ops=9, max_devices=3, memory=False))
def test_without_them_the_same_ops_are_comparable_and_all_of_these_cut_ops(problem):
    part = without_passing(problem)
    comparable = comparable_with_all(problem)
    assert comparable_with_all(part.problem).tolist() == comparable.tolist()
    cut = np.zeros(problem.op_count, dtype=bool)
    cut[part.problem.topological_order[cut_positions(part.problem)]] = True
    assert cut.tolist() == comparable.tolist()
    kept = part.problem
    assert kept.edge_producer.tolist() == problem.edge_producer[part.edges].tolist()
    assert kept.consumers.tolist() == problem.consumers[part.edges].tolist()
    sizes = problem.tensor_bytes[problem.edge_tensor[part.edges]]
    assert kept.tensor_bytes[kept.edge_tensor].tolist() == sizes.tolist()


@settings(max_examples=60, deadline=None)
@given(problems(max_ops=5, max_devices=2))
def test_no_plan_of_the_whole_is_shorter_than_the_best_without_them(problem):
    part = without_passing(problem)
    shortest = shortest_makespan(problem)
    assert shortest_makespan(part.problem) <= shortest * (1 + 1e-9)
    device = np.where(np.isfinite(problem.op_time[:, 0]), 0, problem.device_count - 1)
    placement = part.restricted(schedule_placement(problem, device))
    assert time_placement(part.problem, placement).makespan > 0 or shortest == 0
