"""A problem is checked when it is made, and knows its units, channels and impossibilities."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.cluster import CpuRun, CudaRun
from placewright.errors import ClusterError, GraphError, InfeasibleError, OptionError
from placewright.formats.problems import problem_document, read_problem
from placewright.formats.schema import ProblemEntry
from placewright.options import Options, check_seconds, chosen_options
from placewright.problem import Problem, once_per_problem
from tests.builders import small
from tests.strategies import problems

INF = math.inf


# -- options -------------------------------------------------------------------------------------


def test_an_option_of_another_objective_is_refused():
    with pytest.raises(OptionError, match="option load belongs to objective throughput, not to"):
        Options(load="overlap")
    with pytest.raises(OptionError, match="option contention belongs to objective latency and b"):
        chosen_options({}, {"objective": "throughput", "contention": "none"})


def test_what_a_source_brings_for_another_objective_is_left_out():
    own = {"contention": "port", "transfer_unit": "edge"}
    assert chosen_options(own, {}) == Options(contention="port", transfer_unit="edge")
    assert chosen_options(own, {"objective": "throughput"}) == Options(objective="throughput")
    assert chosen_options(own, {"contention": "none"}).contention == "none"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "batch-throughput", "batch": 0}, "batch is '0'; give a whole number above"),
        ({"objective": "invocation-latency", "subgraphs": True}, "subgraphs is 'True'; give a"),
        ({"objective": "throughput", "contiguous": "yes"}, "contiguous is 'yes'; give true or"),
        ({"objective": "throughput", "load": "all"}, "load is 'all'; choose sum, overlap, duplex"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(changes, message):
    with pytest.raises(OptionError, match=message):
        Options(**changes)


def test_options_take_the_numbers_of_numpy():
    given = Options("throughput", contiguous=np.True_, micro_batches=np.int64(4))
    assert given == Options("throughput", micro_batches=4)
    assert json.loads(json.dumps(given.to_document()))["micro_batches"] == 4
    assert check_seconds(np.float32(0.5)) == 0.5 and check_seconds(np.int64(2)) == 2


def test_an_unknown_option_is_refused():
    with pytest.raises(OptionError, match="no option 'contenton'; objective latency has"):
        chosen_options({}, {"contenton": "none"})


def test_options_have_the_defaults_of_a_real_cluster():
    assert Options().to_document() == {
        "objective": "latency",
        "transfer_unit": "tensor",
        "contention": "link",
        "memory": "resident",
    }


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("objective", "speed", "no objective 'speed'; there are latency, throughput"),
        ("transfer_unit", "bit", "transfer-unit is 'bit'; choose tensor, edge"),
        ("contention", "some", "contention is 'some'; choose none, port, link"),
        ("memory", "none", "memory is 'none'; choose resident, peak"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_those_that_do(option, value, message):
    with pytest.raises(OptionError, match=message):
        Options(**{option: value})


# -- what is derived -----------------------------------------------------------------------------


def test_an_edge_is_a_tensor_with_one_of_its_consumers():
    problem = small()
    assert problem.edge_count == 4
    assert problem.edge_tensor.tolist() == [0, 0, 1, 2]
    assert problem.edge_producer.tolist() == [0, 0, 1, 2]
    assert problem.consumers.tolist() == [1, 2, 3, 3]


@given(problems())
def test_inputs_and_outputs_of_an_op_are_its_edges_and_tensors(problem):
    in_offsets, edges = problem.op_inputs
    out_offsets, tensors = problem.op_outputs
    for op in range(problem.op_count):
        read = edges[in_offsets[op] : in_offsets[op + 1]].tolist()
        assert read == [e for e in range(problem.edge_count) if problem.consumers[e] == op]
        made = tensors[out_offsets[op] : out_offsets[op + 1]].tolist()
        assert made == [t for t in range(problem.tensor_count) if problem.tensor_producer[t] == op]


def test_colocated_ops_are_one_unit_with_their_memory_and_times_added():
    problem = small()
    assert problem.op_unit.tolist() == [0, 1, 1, 2]
    assert problem.unit_count == 3
    assert problem.unit_memory.tolist() == [4, 5, 1]
    assert problem.unit_time.tolist() == [[1, 2], [5, 10], [1, INF]]
    assert problem.unit_pinned.tolist() == [-1, -1, -1]


def test_units_are_numbered_by_their_first_op():
    problem = small(colocation=[9, 3, 9, -1])
    assert problem.op_unit.tolist() == [0, 1, 0, 2]


def test_a_pinned_op_pins_its_whole_unit():
    problem = small(op_pinned=[-1, -1, 1, -1])
    assert problem.unit_pinned.tolist() == [-1, 1, -1]
    assert problem.unit_time.tolist() == [[1, 2], [INF, 10], [1, INF]]


def test_ops_of_one_unit_pinned_apart_can_be_nowhere():
    problem = small(op_pinned=[-1, 0, 1, -1])
    assert problem.unit_time[1].tolist() == [INF, INF]
    says = "op 'b' is pinned to 'x' and 'c' to 'y', and the two must be on one device"
    with pytest.raises(OptionError, match=says):
        problem.check_feasible()


@given(problems())
def test_units_are_the_groups_of_ops_that_must_be_together(problem):
    for one in range(problem.op_count):
        for two in range(problem.op_count):
            group = problem.colocation[one]
            together = one == two or (group >= 0 and group == problem.colocation[two])
            assert (problem.op_unit[one] == problem.op_unit[two]) == together
    assert problem.unit_memory.sum() == pytest.approx(problem.op_memory.sum())


def test_pinning_units_pins_all_their_ops_and_nothing_else():
    pinned = small().with_pins({1: 0, 2: 0})
    assert pinned.op_pinned.tolist() == [-1, 0, 0, 0]
    assert small().op_pinned.tolist() == [-1] * 4


def test_other_memory_makes_another_problem():
    assert small().with_device_memory(np.array([1.0, 2.0])).device_memory.tolist() == [1, 2]


# -- channels ------------------------------------------------------------------------------------


def channels_of(problem: Problem, a: int, b: int) -> list[str]:
    offsets, channels, names = problem.active_channels
    pair = a * problem.device_count + b
    return [names[c] for c in channels[offsets[pair] : offsets[pair + 1]]]


def test_without_contention_a_transfer_keeps_nothing_busy():
    problem = small(options=Options(contention="none"))
    assert [channels_of(problem, a, b) for a in (0, 1) for b in (0, 1)] == [[]] * 4


def test_under_port_a_transfer_keeps_one_port_at_each_end_busy():
    problem = small(options=Options(contention="port"))
    assert channels_of(problem, 0, 1) == ["out of x", "into y"]
    assert channels_of(problem, 1, 0) == ["out of y", "into x"]
    assert channels_of(problem, 0, 0) == channels_of(problem, 1, 1) == []


def test_under_link_a_transfer_keeps_the_channels_of_its_route_busy():
    problem = small(channel_offsets=[0, 0, 2, 3, 3], channels=[0, 1, 1])
    assert channels_of(problem, 0, 1) == ["x → y", "y → x"]
    assert channels_of(problem, 1, 0) == ["y → x"]


@given(problems(options=Options(contention="port"), memory=False))
def test_ports_are_shared_by_the_transfers_of_one_end_only(problem):
    d = problem.device_count
    for a, b in np.ndindex(d, d):
        for e, f in np.ndindex(d, d):
            shared = set(channels_of(problem, a, b)) & set(channels_of(problem, e, f))
            assert bool(shared) == (a != b and e != f and (a == e or b == f))


# -- feasibility ---------------------------------------------------------------------------------


def test_a_feasible_problem_passes():
    small().check_feasible()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"device_memory": [5, 4.5]},
            "the model needs 10 B, the devices have 10 B in all",
        ),
        (
            {"device_memory": [3, 4]},
            "op 'b' with the 1 ops colocated with it (5 B) fits on no device that supports it: "
            "the largest has 4 B",
        ),
        (
            {"device_memory": [0.5, 40]},
            "op 'd' (1 B) fits on no device that supports it: the largest has 0 B",
        ),
        (
            {"op_time": [[1, 2], [2, 4], [INF, INF], [1, INF]]},
            "op 'b' with the 1 ops colocated with it is supported by no device it may run on",
        ),
        (
            {"op_pinned": [-1, -1, -1, 1]},
            "op 'd' is supported by no device it may run on",
        ),
        (
            {"op_pinned": [0, 0, -1, -1], "device_memory": [8, 8]},
            "the ops pinned to 'x' need 9 B, it has 8 B",
        ),
    ],
)
def test_an_infeasible_problem_is_said_so_with_the_arithmetic(changes, message):
    with pytest.raises(InfeasibleError) as caught:
        small(**changes).check_feasible()
    assert str(caught.value) == message


def test_a_total_that_just_fits_is_feasible():
    small(device_memory=[5, 5]).check_feasible()


def test_a_unit_that_just_fits_but_for_rounding_is_feasible():
    assert 0.1 + 0.2 > 0.3
    small(op_memory=[0.0, 0.1, 0.2, 0.0], device_memory=[0.0, 0.3]).check_feasible()


# -- what is refused -----------------------------------------------------------------------------

IMPOSSIBLE = [
    ({"op_time": [[1, 2]]}, "op_time has shape (1, 2), expected (4, 2)"),
    ({"op_time": [[1, 2], [1], [1, 2], [1, 2]]}, "op_time is no array: its rows differ in length"),
    ({"op_time": [[1, 2], [-1, 2], [1, 2], [1, 2]]}, "op_time has an entry that is negative"),
    ({"op_time": [[1, 2], [math.nan, 2], [1, 2], [1, 2]]}, "op_time has an entry that is negative"),
    ({"op_time": [[1e308, 2]] * 4}, "add up to more than a number can hold"),
    ({"tensor_bytes": [1e308] * 3, "link_latency": np.full((2, 2), 1e308)}, "more than a number"),
    ({"is_cpu": [[0], [0, 1]]}, "is_cpu is no array: its rows differ in length"),
    ({"op_memory": [1, 2, 3]}, "op_memory has shape (3,), expected (4,)"),
    ({"op_memory": [1, 2, 3, INF]}, "op_memory has an entry that is not finite"),
    ({"op_memory": [1e308] * 4}, "op_memory adds up to more than a number can hold"),
    ({"op_memory": ["much"] * 4}, "op_memory is no array"),
    ({"device_memory": [-1, 1]}, "device_memory has an entry that is negative"),
    ({"tensor_bytes": [1, 1, math.nan]}, "tensor_bytes has an entry that is not finite"),
    ({"link_latency": [[0]]}, "link_latency has shape (1, 1), expected (2, 2)"),
    ({"link_seconds_per_byte": [[0, INF], [1, 0]]}, "link_seconds_per_byte has an entry"),
    ({"tensor_producer": [0, 1, 4]}, "tensor_producer has an entry outside 0 … 3"),
    ({"consumers": [1, 2, 3, -1]}, "consumers has an entry outside 0 … 3"),
    ({"consumers": [2, 2, 3, 3]}, "a tensor lists the same consumer twice; list it once"),
    ({"consumers": [1, 2, 3, 0]}, "cycle, a → c → a"),
    ({"consumer_offsets": [0, 2, 3, 5]}, "consumer_offsets do not fit"),
    ({"channels": [0, 2]}, "channels has an entry outside 0 … 1"),
    ({"channel_offsets": [0, 2, 1, 2, 2]}, "channel_offsets do not fit"),
    ({"op_pinned": [2, -1, -1, -1]}, "op_pinned has an entry above 1"),
    ({"forward_twin": [4, -1, -1, -1]}, "forward_twin has an entry above 3"),
    ({"device_runs": (CpuRun((0,)),)}, "device_runs has 1 entries for 2 devices"),
    ({"device_hosts": ("a", "b", "c")}, "device_hosts has 3 entries for 2 devices"),
    ({"device_runs": (CudaRun(0), CudaRun(0))}, "both run on GPU 0"),
    ({"device_names": (), "device_kinds": ()}, "has no devices"),
    ({"op_names": ()}, "has no ops"),
]


@pytest.mark.parametrize(("changes", "message"), IMPOSSIBLE, ids=[m for _, m in IMPOSSIBLE])
def test_an_impossible_problem_is_refused(changes, message):
    with pytest.raises(GraphError) as caught:
        small(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_problem_cannot_be_changed_by_accident():
    problem = small()
    for column in ("op_time", "device_memory", "op_unit", "unit_time"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(problem, column).flat[0] = 9


# -- files ---------------------------------------------------------------------------------------


def assert_equal(one: Problem, two: Problem) -> None:
    for field in fields(Problem):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        else:
            assert a == b, field.name


def reread(problem: Problem) -> Problem:
    text = json.dumps(problem_document(problem), allow_nan=False)
    return read_problem(ProblemEntry.model_validate_json(text))


@given(problems(), st.data())
def test_a_problem_reads_back_equal_from_a_plan_file(problem, data):
    unit = data.draw(st.integers(0, problem.unit_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    for each in (problem, problem.with_pins({unit: device})):
        assert_equal(reread(each), each)


def test_every_column_survives_the_file():
    full = small(
        op_types=("a", "b", "c", "d"),
        op_modules=("m", "", "", ""),
        is_backward=[False, False, False, True],
        forward_twin=[-1, -1, -1, 0],
        op_pinned=[0, -1, -1, -1],
        options=Options(transfer_unit="edge", contention="port", memory="peak"),
    )
    assert_equal(reread(full), full)


def test_every_column_of_the_other_objectives_survives_the_file():
    full = small(
        is_cpu=[False, True],
        staging="host",
        host_latency=[[0.1, 0], [0.2, 0]],
        host_seconds_per_byte=[[1, 0], [2, 0]],
        op_sync_bytes=[1, 2, 3, 4],
        batch_sizes=[2, 4],
        batch_time=[[[1, 2], [INF, 3]]] * 4,
        options=Options(objective="batch-throughput", batch=4),
    )
    assert_equal(reread(full), full)


def test_what_devices_are_survives_the_file_and_is_left_out_where_none_says():
    some = small(device_runs=(None, CpuRun((3, 1))))
    document = problem_document(some)
    assert document["devices"]["run"] == [None, {"type": "cpu", "cores": [3, 1]}]
    assert_equal(reread(some), some)
    assert [some.device_run(0), some.device_run(1)] == [None, CpuRun((3, 1))]

    none = small(device_runs=(None, None))
    assert (none.device_runs, none.device_run(1)) == ((), None)
    assert "run" not in problem_document(none)["devices"]


def test_hosts_survive_the_file_and_are_left_out_where_there_is_one():
    two = small(device_hosts=("desk", "rack"))
    assert problem_document(two)["devices"]["host"] == ["desk", "rack"]
    assert_equal(reread(two), two)
    assert [two.device_host(0), two.device_host(1)] == ["desk", "rack"]

    one = small(device_hosts=("desk", "desk"))
    assert (one.device_hosts, one.device_host(1)) == ((), "")
    assert "host" not in problem_document(one)["devices"]


def test_the_host_of_a_run_is_that_of_its_device():
    runs = (None, CudaRun(0, host="10.0.0.2"))
    assert small(device_runs=runs).device_host(1) == "10.0.0.2"
    assert small(device_runs=runs, device_hosts=("desk", "rack")).device_host(1) == "10.0.0.2"


def test_what_devices_are_in_a_file_is_one_entry_per_device():
    document = problem_document(small(device_runs=(None, CudaRun(1))))
    document["devices"]["run"] = [None]
    with pytest.raises(GraphError, match=r"devices.run has 1 entries for 2 devices"):
        read_problem(ProblemEntry.model_validate(document))
    document["devices"]["run"] = [None, {"type": "cpu", "cores": [1, 1]}]
    with pytest.raises(ClusterError, match=r"device '.*': run: core 1 is there twice"):
        read_problem(ProblemEntry.model_validate(document))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"staging": "pigeon"}, "staging is 'pigeon'; choose direct or host"),
        ({"host_latency": [[1, 2]]}, r"host_latency has shape \(1, 2\), expected \(2, 2\)"),
        ({"batch_sizes": [2, 2], "batch_time": np.zeros((4, 2, 2))}, "batch_sizes must rise"),
        ({"batch_sizes": [2]}, None),
        ({"batch_sizes": [2], "batch_time": np.full((4, 2, 1), -1.0)}, "batch_time has an entry"),
        ({"options": Options(objective="batch-throughput")}, "needs batch_sizes and batch_time"),
    ],
)
def test_columns_of_the_other_objectives_are_checked(changes, message):
    if message is None:
        assert small(**changes).batch_time.shape == (4, 2, 1)
        return
    with pytest.raises(GraphError, match=message):
        small(**changes)


def test_columns_that_say_nothing_are_left_out_of_the_file():
    plain = replace(small(colocation=[-1] * 4), op_types=("",) * 4)
    ops = problem_document(plain)["ops"]
    assert ops.keys() == {"name", "time", "memory"}
    assert ops["time"][3] == [1.0, None]


@given(problem=problems())
def test_a_problem_stays_read_only_in_a_worker_process(problem):
    problem.op_inputs, problem.unit_time  # noqa: B018  (kept with it)
    copy = pickle.loads(pickle.dumps(problem))
    for name, value in vars(copy).items():
        for array in value if isinstance(value, tuple) else (value,):
            if isinstance(array, np.ndarray):
                assert not array.flags.writeable, name
    assert (copy.op_time == problem.op_time).all()


def test_what_is_made_once_per_problem_is_made_once_and_not_sent_along():
    made = []

    @once_per_problem
    def count(problem):
        made.append(problem)
        return len(made)

    one, other = small(), small()
    assert [count(one), count(one), count(other)] == [1, 1, 2]
    assert count(pickle.loads(pickle.dumps(one))) == 3
