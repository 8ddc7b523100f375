"""Layers as groups."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.coarsen.contraction import contract
from placewright.coarsen.layers import layer_groups
from placewright.graph import GraphBuilder
from placewright.planning import make_problem
from placewright.solving import solve
from tests.strategies import problems

TARNAWSKI = (
    Path(__file__).resolve().parents[3] / "shared" / "workloads" / "tarnawski" / "throughput"
)


def test_ops_of_a_module_are_one_group_and_what_it_encloses_joins_it():
    builder = GraphBuilder("model")
    first = builder.add_op("first", "op", module="a", flops=1.0)
    between = builder.add_op("between", "op", flops=1.0, inputs=[builder.add_tensor(first, 1.0)])
    last = builder.add_op(
        "last", "op", module="a", flops=1.0, inputs=[builder.add_tensor(between, 1.0)]
    )
    builder.add_op("after", "op", module="b", flops=1.0, inputs=[builder.add_tensor(last, 1.0)])
    problem, _ = make_problem(builder.build(), "2x3090")
    group = layer_groups(problem)
    assert group[0] == group[1] == group[2] != group[3]


@given(st.data())
def test_the_groups_of_any_modules_contract_to_a_dag_that_plans(data):
    problem = data.draw(problems(memory=False))
    names = st.sampled_from(["", "a", "b", "c"])
    count = problem.op_count
    modules = tuple(data.draw(st.lists(names, min_size=count, max_size=count)))
    object.__setattr__(problem, "op_modules", modules)
    group = layer_groups(problem)
    coarse = contract(problem, group).problem  # a cycle would be a GraphError
    assert np.isfinite(coarse.unit_time).any(axis=1).sum() >= (
        np.isfinite(problem.unit_time).any(axis=1).all() * coarse.unit_count
    )


def test_planning_by_layers_gives_whole_layers_to_devices():
    problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090")
    plan = solve(problem, "heft", coarsening="layers")
    for module in set(problem.op_modules) - {""}:
        ops = [op for op, each in enumerate(problem.op_modules) if each == module]
        assert len(set(plan.placement.device[ops].tolist())) == 1


@pytest.mark.skipif(not TARNAWSKI.is_dir(), reason="the published workloads are not here")
@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [("op_bert_l-12_inference", 159.43), ("op_bert_L-12_training", 465.41)],
)
def test_the_best_split_of_whole_layers_is_that_of_the_paper(name, milliseconds):
    """Tarnawski et al. 2020, Table 3: DP on the contracted layer graph."""
    problem, _ = make_problem(TARNAWSKI / f"{name}.json", None, {"objective": "throughput"})
    plan = solve(problem, "ideal-dp", coarsening="layers")
    assert plan.value * 1e3 == pytest.approx(milliseconds, abs=0.01)
