"""Planners for invocation latency, on tiny problems and on the published workloads."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.slots import slot_of
from placewright.bounds import Bound
from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.errors import FormatError, InfeasibleError, OptionError
from placewright.options import Options
from placewright.planners.invocation.base import atoms_of
from placewright.planners.invocation.baselines import (
    Expert,
    Greedy,
    MaxLoadDp,
    Metis,
    Scotch,
    SingleDevice,
)
from placewright.planners.invocation.ip import InvocationIp
from placewright.planners.invocation.search import Annealing, LinearDp, LocalSearch, searched_bound
from placewright.planners.invocation.starts import LinearSearch
from placewright.planners.invocation.subgraphs import with_subgraphs
from placewright.planners.invocation.walk import Walk
from placewright.planning import make_problem, plan
from placewright.simulate.invocation import invoke
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import ACC0, ACC1, CPU
from tests.builders import invocation_chain as chain
from tests.naive.fit import runs_in_subgraphs
from tests.naive.invocation import least_latency
from tests.planners.judging import judged
from tests.strategies import placements
from tests.strategies.invocation import invocation_problems, tight_invocation_problems

WORKLOADS = Path(__file__).parents[3].parent / "shared" / "workloads" / "tarnawski"


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_the_integer_program_finds_the_best_of_all_plans(data):
    small = data.draw(st.booleans())
    problem = data.draw(invocation_problems(4, 2) if small else invocation_problems(5, 2, False, 1))
    best = least_latency(problem)
    planner = InvocationIp(start=data.draw(st.sampled_from(["none", "1", "200"])))
    if best == math.inf:
        with pytest.raises(InfeasibleError):
            solve(problem, planner)
        return
    found = solve(problem, planner)
    assert verify(found).ok
    assert found.value == pytest.approx(best, rel=1e-5, abs=1e-9)
    assert found.lower_bound <= best * (1 + 1e-9)


EVERY = {
    "single-device": SingleDevice,
    "greedy": Greedy,
    "linear-dp": lambda: LinearDp(orders=5, moves=50),
    "annealing": lambda: Annealing(iterations=200, orders=5),
    "local-search": lambda: LocalSearch(200),
    "max-load-dp": MaxLoadDp,
    "metis": Metis,
    "scotch": Scotch,
    "invocation-ip": lambda: InvocationIp(start="100", cuts=100),
    "invocation-ip, cold": lambda: InvocationIp(start="none", cuts=100),
}


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=60)
@given(problem=tight_invocation_problems())
def test_its_plan_passes_the_judge_or_nothing_fits(name, problem):
    if name in ("metis", "scotch"):
        pytest.importorskip({"metis": "pymetis", "scotch": "pyscotch"}[name])
    judged(problem, EVERY[name]())


@given(data=st.data())
def test_a_split_says_how_many_subgraphs_are_enough(data):
    problem = data.draw(tight_invocation_problems(8))
    problem = replace(problem, options=replace(problem.options, subgraphs=1))
    device = data.draw(placements(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    least = next(q for q in range(1, 9) if runs_in_subgraphs(with_most(problem, q), device))
    if least == 1:
        with_subgraphs(problem, device, "some")
        return
    with pytest.raises(InfeasibleError, match=rf"falls into {least} .*subgraphs={least}"):
        with_subgraphs(problem, device, "some")
    for allowed in range(least, 5):
        invoke(problem, with_subgraphs(with_most(problem, allowed), device, "some"))


def with_most(problem, subgraphs):
    return replace(problem, options=replace(problem.options, subgraphs=subgraphs))


@pytest.mark.parametrize(("accelerator", "cpu"), [(0, 2), (1, 0)])
def test_ops_on_a_cpu_take_no_slot_of_another_device(accelerator, cpu):
    """From accelerator to CPU and back and, backward, to the CPU: there with a high level."""
    problem = chain(Options("invocation-latency", subgraphs=2), backward="d")
    problem = replace(problem, is_cpu=np.arange(3) == cpu)
    device = np.array([accelerator, cpu, accelerator, cpu])
    found = with_subgraphs(problem, device, "some")
    assert found.device.tolist() == device.tolist()
    assert found.subgraph.tolist() == [0, -1, 1, -1]


def test_a_unit_taken_apart_is_on_one_cpu():
    """a and d are together; each alone would be faster on another CPU."""
    problem = chain(Options("invocation-latency"), colocate="ad")
    times = np.tile([9.0, 2.0, 2.9], (4, 1))
    times[3] = [9.0, 4.0, 1.0]
    two = replace(problem, is_cpu=np.array([False, True, True]), op_time=times)
    for atoms in (atoms_of(two), atoms_of(two, [int(two.op_unit[0])])):
        cpus = atoms.cpu[atoms.of_op]
        assert cpus[0] == cpus[3] == CPU
        assert atoms.cpu_time[atoms.of_op[3]] == times[:, CPU][atoms.of_op == atoms.of_op[3]].sum()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_searches_keep_every_rule_and_beat_no_brute_force(data):
    small = data.draw(st.booleans())
    problem = data.draw(invocation_problems(4, 2) if small else invocation_problems(6, 2, False, 1))
    best = least_latency(problem)
    planner = data.draw(
        st.sampled_from(
            [LinearDp(orders=5, moves=50), Annealing(iterations=300), LocalSearch(300), Greedy()]
        )
    )
    found = judged(problem, planner)
    if found is None:
        return
    assert found.value >= best * (1 - 1e-9)
    assert found.lower_bound <= best * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(invocation_problems(6, 2, training=False, max_subgraphs=1))
def test_annealing_finds_the_best_of_all_plans_of_tiny_problems(problem):
    best = least_latency(problem)
    if best < math.inf:
        assert solve(problem, Annealing(iterations=5_000)).value == pytest.approx(best, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(tight_invocation_problems())
def test_annealing_finds_the_best_of_all_plans_where_devices_are_full(problem):
    assume(not problem.is_backward.any() and problem.options.subgraphs == 1)  # few plans
    best = least_latency(problem)
    if best < math.inf:
        assert solve(problem, Annealing(iterations=5_000)).value == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("planner", [LinearDp(orders=5), Annealing(500), LocalSearch(500)])
def test_the_same_seed_gives_the_same_plan(planner, published):
    problem = published("op_bert_l-3_inference")
    plans = [solve(problem, planner, seed=7).placement for _ in range(2)]
    assert plans[0].device.tolist() == plans[1].device.tolist()
    assert plans[0].subgraph.tolist() == plans[1].subgraph.tolist()


@pytest.mark.parametrize(
    ("planner", "options"),
    [
        (LinearDp, {"orders": "0"}),
        (LinearDp, {"moves": "-1"}),
        (Annealing, {"temperature": "hot"}),
        (Annealing, {"iterations": "x"}),
        (LocalSearch, {"restarts": "0"}),
        (InvocationIp, {"solver": "cplex"}),
        (InvocationIp, {"start": "warm"}),
        (InvocationIp, {"nodes": "many"}),
        (InvocationIp, {"cuts": "-1"}),
    ],
)
def test_a_wrong_option_is_named(planner, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        planner(**options)


class Heard:
    """A listener that remembers."""

    def __init__(self):
        self.placements, self.bounds = [], []

    def found(self, placement):
        self.placements.append(placement)

    def proved(self, lower_bound, source):
        self.bounds.append(lower_bound)


@pytest.mark.parametrize("planner", [LinearDp(orders=30), Annealing(30_000)])
def test_a_listener_hears_of_better_and_better_plans(planner, published):
    problem = published("op_bert_l-3_inference")
    heard = Heard()
    final = planner.plan(problem, Budget(listener=heard), 0, no_progress).placement
    values = [invoke(problem, each).value for each in heard.placements]
    assert values and values == sorted(set(values), reverse=True)
    assert invoke(problem, final).value <= values[-1]


def test_a_search_that_begins_anew_keeps_the_best_of_all():
    problem = chain(Options("invocation-latency"), memory=2.0)
    search = LinearSearch(problem, np.random.default_rng(0), Budget())
    search.sample(5, search.budget)
    walk = Walk(search, search.op_slot, 100)
    best = walk.best
    walk.begin_anew(slot_of(problem, np.full(problem.op_count, CPU)))
    assert walk.best == best < walk.chain
    assert invoke(problem, walk.placement()).value == pytest.approx(best)


def test_a_bound_above_any_latency_proves_that_nothing_fits():
    """Three ops can be on an accelerator only that has room for one: memory's price has no end."""
    elsewhere = [(op, device) for op in (1, 2, 3) for device in (ACC1, CPU)]
    problem = chain(Options("invocation-latency"), unsupported=elsewhere, memory=1.0)
    assert searched_bound(problem, Budget(), math.inf).value > 1000
    for start in ("none", "100"):
        with pytest.raises(InfeasibleError, match=r"'invocation-ip': no split .* as is proved"):
            solve(problem, InvocationIp(start=start))


def test_without_cuts_the_program_proves_by_itself_beside_a_start():
    problem = chain(Options("invocation-latency"), memory=2.0)
    start = solve(problem, Greedy()).placement
    heard = Heard()
    found = InvocationIp(cuts=0).plan(problem, Budget(60.0, start, heard), 0, no_progress)
    assert heard.bounds == []
    assert found.lower_bound == pytest.approx(least_latency(problem), rel=1e-5)


# -- published workloads (Tarnawski et al. 2020, Table 4; milliseconds) ----------------------


@pytest.fixture
def published():
    def read(name, **options):
        path = WORKLOADS / "latency" / f"{name}.json"
        if not path.exists():
            pytest.skip("the published workloads are not here")
        return make_problem(path, None, {"objective": "invocation-latency", **options})[0]

    return read


@pytest.mark.parametrize(
    ("name", "planner", "milliseconds"),
    [
        ("layer_bert24_inference", Greedy(), 100.2185),
        ("op_bert_l-12_inference", Greedy(), 867.84),
        ("layer_bert24_inference", MaxLoadDp(), 108.03),
        ("op_bert_l-12_inference", MaxLoadDp(), 1327.03),
    ],
)
def test_baselines_are_those_of_the_paper(name, planner, milliseconds, published):
    found = solve(published(name), planner, bound=Bound(0.0, "not asked for"))
    assert found.value * 1e3 == pytest.approx(milliseconds, abs=0.01)


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        ("op_bert_l-3_inference", 408.4745),
        ("layer_bert24_inference", 100.2185),
        ("layer_resnet50_inference", 1156.8813),
    ],
)
def test_annealing_reaches_and_proves_the_optimum(name, milliseconds, published):
    found = solve(published(name), Annealing(iterations=60_000), seed=1)  # five of six seeds do
    assert found.value * 1e3 <= milliseconds
    assert found.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "milliseconds", "gap"),
    [("op_bert_l-12_inference", 729.57, 1e-4), ("op_resnet50_inference", 651.121, 0.003)],
)
def test_annealing_comes_close_on_large_graphs(name, milliseconds, gap, published):
    solve(published("layer_bert24_inference"), Annealing(iterations=100))  # compiles
    found = solve(published(name), Annealing(), time_limit=30)
    assert found.value * 1e3 <= milliseconds
    assert found.gap <= gap


def test_the_integer_program_starts_from_the_optimum_and_stops(published):
    found = solve(published("layer_bert24_inference"), InvocationIp(), time_limit=60)
    assert found.status == "optimal"
    assert found.seconds < 30


def test_no_accelerator_holds_everything_so_one_device_is_a_cpu(published):
    problem = published("layer_bert24_inference")
    found = solve(problem, SingleDevice())
    assert problem.is_cpu[found.placement.device].all()
    assert not len(found.outcome.invocations)


def test_an_expert_for_more_accelerators_is_refused_by_name(published):
    problem = published("layer_bert24_inference")
    file = WORKLOADS / "experts" / "bert24_inference_expert.json"
    with pytest.raises(FormatError, match="acc5"):
        solve(problem, Expert(file=str(file)))


def test_an_expert_is_judged_by_latency(published, tmp_path):
    published("layer_bert24_inference")  # skips where the workloads are not
    content = json.loads((WORKLOADS / "latency" / "layer_bert24_inference.json").read_text())
    content["maxFPGAs"] = 6  # as many as the expert uses
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(content))
    problem = make_problem(path, None, {"objective": "invocation-latency"})[0]
    file = WORKLOADS / "experts" / "bert24_inference_expert.json"
    found = solve(problem, Expert(file=str(file)))
    assert found.value * 1e3 == pytest.approx(111.94, abs=0.01)


def test_a_partition_says_how_many_subgraphs_it_needs(published):
    pytest.importorskip("pyscotch")
    problem = published("op_bert_l-3_inference")
    with pytest.raises(InfeasibleError, match=r"subgraphs=\d+"):
        solve(problem, Scotch())
    found = solve(published("op_bert_l-3_inference", subgraphs=40), Scotch())
    assert verify(found).ok


@pytest.mark.parametrize(
    "trouble", [{"unsupported": [(1, ACC0)]}, {"memory": 2.0}], ids=["unsupported", "no room"]
)
def test_greedy_says_so_where_a_pin_ties_ops_to_a_device_they_cannot_be_on(trouble):
    """a and c are colocated, so b between them is where they are pinned, if invoked once."""
    problem = chain(Options("invocation-latency"), colocate="ac", **trouble)
    pinned = replace(problem, op_pinned=np.array([ACC0, -1, -1, -1]))
    pinned.check_feasible()
    with pytest.raises(InfeasibleError, match=r"'greedy': no split .* as is proved"):
        Greedy().plan(pinned, Budget(), 0, no_progress)
    elsewhere = Greedy().plan(problem, Budget(), 0, no_progress).placement
    assert (elsewhere.device[:3] != ACC0).all()


def test_interrupted_annealing_keeps_what_it_has(published, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Walk, "anneal", interrupt)
    found = solve(published("op_bert_l-3_inference"), Annealing(orders=3))
    assert verify(found).ok


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("planner", ["auto", "greedy", "single-device", "annealing"])
def test_a_cluster_without_accelerators_has_no_subgraphs(planner, count):
    cpus = tuple(Device(f"cpu{k}", "EPYC 7763", memory=1e11) for k in range(count))
    links = tuple(Link("cpu0", each.name, 1e10) for each in cpus[1:])
    found = plan("zoo:gpt2?layers=1", Cluster("cpus", cpus, links), planner=planner,
                 objective="invocation-latency", time_limit=1)  # fmt: skip
    assert found.lower_bound == pytest.approx(found.value)
    assert verify(found).ok
