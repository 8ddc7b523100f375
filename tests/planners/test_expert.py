"""Placements by hand: what the files may say, and what is said of files that cannot hold."""

import json

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import FormatError, InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.importers.workloads import read_workload
from placewright.planners.expert import Expert
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
