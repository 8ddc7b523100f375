"""Placements by hand: what the files may say, and what is said of files that cannot hold."""

import json
from dataclasses import replace

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import FormatError, InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.importers.workloads import read_workload
from placewright.options import Options
from placewright.planners.latency.construct.expert import Expert
from placewright.planning import make_problem
from placewright.solving import solve
from placewright.verify import verify

OPS = ("embed", "h.0.mlp", "h.0.norm", "h.1.mlp", "h.10.mlp", "head")
MODULES = ("", "model.h.0", "model.h.0", "model.h.1", "model.h.10", "lm")


def chain(names=OPS, modules=MODULES, memory=np.inf, colocate=None, unsupported=()):
    """Ops one after another, a second and 1 GB each, on devices a and b."""
    builder = GraphBuilder("chain")
    for op, (name, module) in enumerate(zip(names, modules, strict=True)):
        together = "group" if colocate and name in colocate else None
        builder.add_op(name, "op", module=module, parameter_bytes=2.0**30, colocate=together)
        if op:
            builder.connect(builder.add_tensor(op - 1, 1e6), op)
    builder.times["a"] = [1.0] * len(names)
    builder.times["b"] = [np.inf if name in unsupported else 2.0 for name in names]
    devices = (Device("a", "a", memory=memory), Device("b", "b", memory=memory))
    cluster = Cluster("two", devices=devices, links=(Link("a", "b", bandwidth=1e9),))
    return make_problem(builder.build(), cluster)[0]


@pytest.fixture
def write(tmp_path):
    def _write(content, name="mine.json"):
        path = tmp_path / name
        if isinstance(content, dict) and "format" not in content and "fpgas" not in content:
            content = {"format": "placewright.placement/1", "placement": content}
        path.write_text(json.dumps(content))
        return str(path)

    return _write


def placed(problem, file, **options):
    plan = solve(problem, Expert(file=file, **options))
    assert verify(plan).ok
    return "".join(plan.device_of()[op] for op in problem.op_names)


def test_every_op_by_name(write):
    assert placed(chain(), write(dict(zip(OPS, "abbaab", strict=True)))) == "abbaab"


def test_the_empty_key_places_all_others(write):
    assert placed(chain(), write({"": "a", "head": "b"})) == "aaaaab"


def test_a_prefix_ends_where_a_part_of_the_name_ends(write):
    assert placed(chain(), write({"": "a", "h.1": "b"})) == "aaabaa"
    assert placed(chain(), write({"": "a", "model.h.1": "b"})) == "aaabaa"


def test_the_longest_key_counts(write):
    file = write({"": "b", "model": "a", "model.h.0": "b", "h.0.norm": "a"})
    assert placed(chain(), file) == "bbaaab"


def test_an_ops_own_name_counts_more_than_a_longer_prefix_of_its_module(write):
    problem = chain(names=("x", "y"), modules=("a.long.module", "a.long.module"))
    assert placed(problem, write({"a.long": "b", "x": "a"})) == "ab"


def test_a_yaml_file_does_too(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text('format: placewright.placement/1\nplacement:\n  "": a\n  h: b\n')
    assert placed(chain(), str(path)) == "abbbba"


def test_a_saved_plan_gives_its_placement(write, tmp_path):
    plan = solve(chain(), Expert(file=write(dict(zip(OPS, "abbaab", strict=True)))))
    plan.save(tmp_path / "plan.json")
    assert placed(chain(), str(tmp_path / "plan.json")) == "abbaab"


def test_a_saved_plan_of_another_model_is_refused(write, tmp_path):
    solve(chain(), "single-device").save(tmp_path / "plan.json")
    other = chain(names=("one", "two"), modules=("", ""))
    with pytest.raises(FormatError, match="'embed' is no op"):
        placed(other, str(tmp_path / "plan.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"": "c"}, "op 'embed' is placed on 'c', which is no device; there are a, b"),
        ({"h": "a"}, r"no device is given for op 'embed' and 1 other ops"),
        ({"": "a", "h.2": "b"}, "'h.2' is no op and no prefix"),
        ({"": "a", "heed": "b"}, "did you mean 'head'"),
        ({"": 3}, "field placement"),
        ({"format": "placewright.placement/2", "placement": {}}, "placewright.placement/1"),
        ({"format": "other", "placement": {}}, "expected 'placewright.placement/1'"),
        ({"fpgas": [{"nodes": ["one"]}], "cpus": []}, "field fpgas.0.nodes.0"),
        ({"fpgas": [{"nodes": [1]}, {"nodes": [1]}], "cpus": []}, "node 1 is already on acc0"),
    ],
)
def test_what_a_file_gets_wrong_is_said(write, content, message):
    with pytest.raises(FormatError, match=message) as caught:
        placed(chain(), write(content))
    assert "mine.json" in str(caught.value)


def test_colocated_ops_must_be_placed_together(write):
    problem = chain(colocate=("embed", "head"))
    with pytest.raises(FormatError, match="'embed' and 'head' must be together but are placed on"):
        placed(problem, write({"": "a", "head": "b"}))
    assert placed(problem, write({"": "a", "head": "b", "embed": "b"})) == "baaaab"


def test_a_pin_must_agree(write):
    problem = chain()
    pinned = problem.with_pins({int(problem.op_unit[0]): 1})
    with pytest.raises(FormatError, match="'embed' is placed on 'a' but pinned to 'b'"):
        placed(pinned, write({"": "a"}))
    assert placed(pinned, write({"": "a", "embed": "b"})) == "baaaaa"


def test_an_op_its_device_cannot_run_is_named(write):
    with pytest.raises(InfeasibleError, match="'head' is placed on 'b', which cannot run it"):
        placed(chain(unsupported=("head",)), write({"": "b"}))


def test_an_overflow_comes_with_the_arithmetic(write):
    problem = chain(memory=4.5 * 2**30)
    with pytest.raises(InfeasibleError, match=r"placed on 'a' need 5.0 GiB, it has 4.5 GiB"):
        placed(problem, write({"": "a", "head": "b"}))


def test_it_needs_a_file():
    with pytest.raises(OptionError, match="-O file=PATH"):
        Expert()


def test_published_numbers_are_names_of_unnamed_ops(write):
    names = ("node7", "node3", "relu#5")
    problem = chain(names=names, modules=("", "", ""))
    renamed = Cluster(
        "published",
        devices=(Device("acc0", "a", memory=np.inf), Device("cpu0", "b", memory=np.inf)),
        links=(Link("acc0", "cpu0", bandwidth=1e9),),
    )
    builder = GraphBuilder("published")
    for name in problem.op_names:
        builder.add_op(name, "op")
    builder.times["a"] = builder.times["b"] = [1.0] * 3
    problem, _ = make_problem(builder.build(), renamed)
    file = write({"fpgas": [{"load": -1, "nodes": [7, 5]}], "cpus": [{"nodes": [3]}]})
    assert placed(problem, file) == "acc0cpu0acc0"


# -- the published expert placements ---------------------------------------------------------


def published(workloads, workload, expert):
    source = workloads / "tarnawski" / workload
    file = str(workloads / "tarnawski/experts" / expert)
    return make_problem(source)[0], file, source


@pytest.mark.parametrize("name", ["bert24", "inceptionv3", "resnet50"])
def test_published_inference_placements_are_planned(workloads, name):
    problem, file, source = published(
        workloads, f"throughput/layer_{name}_inference.json", f"{name}_inference_expert.json"
    )
    plan = solve(problem, Expert(file=file))
    assert verify(plan).ok
    content = json.loads(
        (workloads / f"tarnawski/experts/{name}_inference_expert.json").read_text()
    )
    counts = np.bincount(plan.placement.device, minlength=problem.device_count)
    assert counts.tolist() == [len(d["nodes"]) for d in content["fpgas"]] + [0]
    ids = read_workload(json.loads(source.read_text()), source).op_ids
    device = dict(zip(ids, plan.device_of().values(), strict=True))
    assert all(device[i] == f"acc{k}" for k, d in enumerate(content["fpgas"]) for i in d["nodes"])
    by_workload = solve(problem, Expert(file=file, workload=str(source)))
    assert by_workload.value == plan.value


def test_a_published_training_placement_needs_the_numbers_of_its_workload(workloads):
    problem, file, source = published(
        workloads, "throughput/layer_bert24_training.json", "bert24_training_expert.json"
    )
    with pytest.raises(FormatError, match="-O workload=PATH"):
        solve(problem, Expert(file=file))
    plan = solve(problem, Expert(file=file, workload=str(source)))
    counts = np.bincount(plan.placement.device, minlength=problem.device_count)
    assert counts.tolist() == [16, 8, 8, 8, 8, 16, 0]


def test_a_workload_of_another_size_is_refused(workloads):
    problem, file, _ = published(
        workloads, "throughput/layer_bert24_training.json", "bert24_training_expert.json"
    )
    other = workloads / "tarnawski/throughput/layer_bert24_inference.json"
    with pytest.raises(OptionError, match=r"has 32 ops, the problem .* has 64"):
        solve(problem, Expert(file=file, workload=str(other)))


def test_the_resnet50_expert_runs_out_of_memory_where_the_paper_says(workloads):
    """Tarnawski et al. 2020, Table 4: "OOM" for the expert placement."""
    problem, file, _ = published(
        workloads, "latency/layer_resnet50_inference.json", "resnet50_inference_expert.json"
    )
    with pytest.raises(InfeasibleError, match=r"the ops placed on 'acc\d' need .* it has 2.0 GiB"):
        solve(problem, Expert(file=file))


def views():
    """op0 → view0 → op1 → view1 → op2, of which the views cost nothing."""
    builder = GraphBuilder("views")
    names = ("op0", "view0", "op1", "view1", "op2")
    for op, name in enumerate(names):
        costs = 0.0 if name.startswith("view") else 1.0
        builder.add_op(name, "op", parameter_bytes=costs)
        if op:
            builder.connect(builder.add_tensor(op - 1, 1e6), op)
    times = [0.0 if name.startswith("view") else 1.0 for name in names]
    builder.times["a"] = builder.times["b"] = times
    devices = (Device("a", "a", memory=9.0), Device("b", "b", memory=9.0))
    cluster = Cluster("two", devices=devices, links=(Link("a", "b", bandwidth=1e9),))
    return make_problem(builder.build(), cluster, {"objective": "throughput"})[0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"op0": "a", "op1": "a", "op2": "b"}, "aaaab"),  # what the file leaves out
        ({"": "a", "op1": "b", "op2": "b"}, "aabbb"),  # what only the empty key has
        ({"": "a", "view0": "b", "op1": "b", "op2": "b"}, "abbbb"),  # named, it is where it is put
    ],
)
def test_views_are_where_their_input_is_made(write, content, expected):
    plan = solve(views(), "expert", planner_options={"file": write(content)})
    assert verify(plan).ok
    assert "".join(plan.device_of()[op] for op in plan.problem.op_names) == expected


def test_an_op_that_costs_something_must_be_placed(write):
    with pytest.raises(FormatError, match="no device is given for op 'op1'"):
        solve(views(), "expert", planner_options={"file": write({"op0": "a", "op2": "b"})})


def test_the_edges_that_part_a_split_are_named(write):
    file = write({"op0": "a", "op1": "b", "op2": "a"})
    with pytest.raises(InfeasibleError) as caught:
        solve(views(), "expert", planner_options={"file": file})
    assert str(caught.value) == (
        f"{file}: the placement is not contiguous: data goes from 'view0' on 'a' to 'op1' on 'b', "
        "from 'view1' on 'b' to 'op2' on 'a'; move these ops, or allow that (--no-contiguous)"
    )


def test_a_peak_that_overflows_is_named_with_what_lives_there(write):
    problem = chain(memory=6.0 * 2**30)
    problem = replace(problem, options=Options(memory="peak"))
    file = write({"": "a"})
    with pytest.raises(InfeasibleError, match=r"with the tensors that live there, need 6\.0"):
        solve(problem, "expert", planner_options={"file": file})
