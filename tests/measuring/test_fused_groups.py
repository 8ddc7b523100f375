"""Groups that an engine fuses are measured as one, and cost that where they are planned as one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CpuRun, Device, Link  # noqa: E402
from placewright.coarsen.contraction import contract  # noqa: E402
from placewright.coarsen.fusion import fusion_groups  # noqa: E402
from placewright.costs.detect import cpu_kind  # noqa: E402
from placewright.costs.machine import examine  # noqa: E402
from placewright.costs.profiles import compiling  # noqa: E402
from placewright.costs.profiles.entry import Measured, ProfileKey  # noqa: E402
from placewright.costs.profiles.fused import fused_groups  # noqa: E402
from placewright.costs.profiles.lookup import identity, library_of  # noqa: E402
from placewright.costs.profiles.store import ProfileStore  # noqa: E402
from placewright.costs.roofline import CostOptions  # noqa: E402
from placewright.errors import OptionError  # noqa: E402
from placewright.graph import GraphBuilder  # noqa: E402
from placewright.importers import Imported, load  # noqa: E402
from placewright.measuring.fused_groups import profile_groups  # noqa: E402
from placewright.planning import make_problem, plan  # noqa: E402
from placewright.problem import MEASURED  # noqa: E402
from placewright.verify import verify  # noqa: E402
from tests.cli.running import run  # noqa: E402

SOURCE = "torch:tests.costs.profiles.models:two_layers"


@pytest.fixture
def cluster() -> Cluster:
    kind = cpu_kind(examine().processor)
    figures = {"memory": 1e9, "peak_flops": {"fp32": 1e11}, "memory_bandwidth": 1e10}
    core = Device("core", kind, run=CpuRun((0,)), **figures)  # type: ignore[arg-type]
    other = Device("other", "T4")
    return Cluster("pair", (core, other), (Link("core", "other", 1e9),))


@cache
def imported() -> Imported:
    return load(SOURCE)


def stored(path: Path, cluster: Cluster, seconds: float) -> CostOptions:
    """A store in which every group that is fused takes `seconds` on the first device."""
    graph = imported().graph
    problem, _ = make_problem(imported(), cluster, costs=CostOptions(profiles=None))
    groups = fused_groups(graph, fusion_groups(problem))
    assert groups
    named = str(identity(cluster.devices[0]))
    with ProfileStore(path) as store:
        store.put(
            {
                ProfileKey(each, named, library_of(graph)): Measured(
                    seconds, seconds, seconds, 9, "isolated"
                )
                for each in groups.values()
            }
        )
    return CostOptions(profiles=path)


# -- planning with them --------------------------------------------------------------------------


def test_a_group_costs_what_it_was_measured_to_take(tmp_path: Path, cluster: Cluster) -> None:
    costs = stored(tmp_path / "store", cluster, 3e-3)
    fused, _ = make_problem(imported(), cluster, costs=costs, coarsening="fusion")
    plain, _ = make_problem(imported(), cluster, costs=costs)
    group = fusion_groups(fused)
    several = np.bincount(group) > 1
    coarse = contract(fused, group).problem
    assert several.any()
    assert coarse.op_time[several, 0] == pytest.approx(3e-3)
    inside = several[group]
    assert (fused.op_cost_source[inside, 0] == MEASURED).all()
    assert (fused.op_time[~inside] == plain.op_time[~inside]).all()
    assert (fused.op_time[:, 1] == plain.op_time[:, 1]).all()  # nothing was measured there


def test_ops_that_are_planned_one_by_one_keep_times_of_their_own(
    tmp_path: Path, cluster: Cluster
) -> None:
    costs = stored(tmp_path / "store", cluster, 3e-3)
    alone, _ = make_problem(imported(), cluster, costs=costs)
    nothing, _ = make_problem(imported(), cluster, costs=CostOptions(profiles=None))
    assert (alone.op_time == nothing.op_time).all()


def test_plans_of_fused_groups_hold_and_their_bounds_too(tmp_path: Path, cluster: Cluster) -> None:
    costs = stored(tmp_path / "store", cluster, 1e-7)
    found = plan(imported(), cluster, planner="heft", coarsening="fusion", costs=costs)
    verify(found).raise_if_failed()
    assert found.lower_bound <= found.value


# -- what names a group --------------------------------------------------------------------------


def chain(*signatures: str, skip: bool = False) -> dict[tuple[int, ...], str]:
    builder = GraphBuilder("chain")
    tensors: list[int] = []
    for number, text in enumerate(signatures):
        reads = tensors[-1:] + ([tensors[0]] if skip and number == 2 else [])
        op = builder.add_op(f"op{number}", "x", reads, signature=text)
        tensors.append(builder.add_tensor(op, 4.0))
    return fused_groups(builder.build(), np.zeros(len(signatures), dtype=np.int32))


def test_equal_calls_that_read_each_other_alike_are_one_group() -> None:
    calls = ("aten.mm.default(a)", "aten.relu.default(b)", "aten.add.Tensor(c)")
    [(ops, text)] = chain(*calls).items()
    assert ops == (0, 1, 2) and text.startswith("fused.mm+relu+add(")
    assert [*chain(*calls).values()] == [text]
    assert [*chain(*calls, skip=True).values()] != [text]
    assert [*chain(*calls[:2], "aten.add.Tensor(d)").values()] != [text]


def test_groups_with_an_op_that_nobody_can_measure_are_left_out() -> None:
    assert chain("aten.mm.default(a)", "") == {}
    assert chain("", "") == {}
    assert chain("aten.mm.default(a)") == {}


# -- measuring -----------------------------------------------------------------------------------


def test_without_a_compiler_it_is_said_before_anything_is_measured(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        ProfileStore(tmp_path / "store") as store,
        pytest.raises(OptionError, match=r"needs a C\+\+ compiler, and there is no g\+\+ or clang"),
    ):
        profile_groups(SOURCE, cluster, store)
    monkeypatch.setenv("CXX", "mine++")
    with pytest.raises(OptionError, match=r"there is no mine\+\+; install g\+\+"):
        compiling.check_compiler()


def test_the_command_says_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "mine++")
    result = run("profile", SOURCE, "--compiled", "--profiles", tmp_path / "store")
    assert (result.code, result.out) == (2, "")
    assert "there is no mine++; install g++" in result.err


def test_compiled_groups_are_no_part_of_a_standard_evaluation() -> None:
    result = run("profile", SOURCE, "--compiled", "--standard-evaluation")
    assert (result.code, result.out) == (2, "")
    assert "--compiled goes without --standard-evaluation" in result.err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs g++")
def test_groups_are_compiled_measured_and_kept_once(tmp_path: Path, cluster: Cluster) -> None:
    with ProfileStore(tmp_path / "store") as store:
        [done] = profile_groups(SOURCE, cluster, store)
        assert done.compiled and done.measured >= 1 and not done.failed
        [again] = profile_groups(SOURCE, cluster, store)
        assert (again.measured, again.known) == (0, done.measured)
    costs = CostOptions(profiles=tmp_path / "store")
    fused, _ = make_problem(SOURCE, cluster, costs=costs, coarsening="fusion")
    plain, _ = make_problem(SOURCE, cluster, costs=replace(costs, profiles=None))
    assert (fused.op_time[:, 0] != plain.op_time[:, 0]).any()
