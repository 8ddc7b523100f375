"""The file formats, as pydantic models: the one place that says what a file may hold.

JSON Schemas are made from these (`json_schema`, and ``placewright schema`` on the command line).
This module is imported when a file is first read; importing pydantic takes a tenth of a second.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from placewright.errors import OptionError
from placewright.units import parse_bandwidth, parse_bytes, parse_flops, parse_seconds

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Index = Annotated[int, Field(ge=-1, le=2**31 - 1)]
OpNumber = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Hardware = Annotated[int, Field(ge=0, le=2**31 - 1)]  # a logical CPU, a GPU
Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4"]  # graph.DTYPES


def _quantity(parse: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _without(*types: type, wanted: str) -> BeforeValidator:
    """Refuse entries of a column that pydantic would turn into what they are not."""

    def check(values: Any) -> Any:
        if isinstance(values, list) and not set(types).isdisjoint(map(type, values)):
            place = next(each for each, value in enumerate(values) if type(value) in types)
            raise ValueError(f"entry {place} is {values[place]!r}; write {wanted}")
        return values

    return BeforeValidator(check)


Indices = Annotated[list[Index], _without(str, bool, wanted="a whole number")]
OpNumbers = Annotated[list[OpNumber], _without(str, bool, wanted="the number of an op")]
Truths = Annotated[list[bool], _without(str, wanted="true or false")]
Bytes = Annotated[Amount, _quantity(parse_bytes)]
Bandwidth = Annotated[Positive, _quantity(parse_bandwidth)]
Seconds = Annotated[Amount, _quantity(parse_seconds)]
Flops = Annotated[Positive, _quantity(parse_flops)]


def _plain_unlimited(value: Any) -> Any:
    """The word for no limit, however it is written."""
    is_it = isinstance(value, str) and value.strip().lower() == "unlimited"
    return "unlimited" if is_it else value


Memory = Annotated[Bytes | Literal["unlimited"], BeforeValidator(_plain_unlimited)]
LinkBandwidth = Annotated[Bandwidth | Literal["unlimited"], BeforeValidator(_plain_unlimited)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


# -- what a device is on the machine at hand ---------------------------------------------------


class CpuRunEntry(Strict):
    """Logical CPUs; `host`: of which machine, where that is not the one at hand."""

    type: Literal["cpu"]
    cores: Annotated[list[Hardware], Field(min_length=1)]
    host: str = ""


class CudaRunEntry(Strict):
    """An NVIDIA GPU, by its number in nvidia-smi; `host` as for CPUs."""

    type: Literal["cuda"]
    index: Hardware
    host: str = ""


def _known_run(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") not in ("cpu", "cuda"):
        found = f"type {value['type']!r} is unknown" if "type" in value else "type is missing"
        raise ValueError(f"{found}; use cpu or cuda")
    return value


RunEntry = Annotated[
    CpuRunEntry | CudaRunEntry, Field(discriminator="type"), BeforeValidator(_known_run)
]


# -- placewright.graph/1 ---------------------------------------------------------------------


class GraphOps(Strict):
    """Columns: one entry per op. Only `name` is required."""

    name: Annotated[list[str], Field(min_length=1)]
    type: list[str] | None = None
    module: list[str] | None = None
    dtype: list[str] | None = None
    signature: list[str] | None = None
    flops: list[Amount] | None = None
    bytes_read: list[Amount] | None = None
    bytes_written: list[Amount] | None = None
    parameter_bytes: list[Amount] | None = None
    state_bytes: list[Amount] | None = None
    backward: Truths | None = None
    twin: Indices | None = None
    colocation: Indices | None = None
    copy_bytes: list[Amount] | None = None
    copy_colocation: Indices | None = None


class Tensors(Strict):
    """Columns: one entry per tensor; ops are named by their number, from 0."""

    producer: OpNumbers
    bytes: list[Amount]
    consumers: list[OpNumbers]
    name: list[str] | None = None


class CopyTensors(Strict):
    """Tensors that there are only where ops with shared weights have a copy each."""

    producer: OpNumbers
    bytes: list[Amount]
    consumers: list[OpNumbers]


class GraphFile(Strict):
    """A model's graph: bytes, FLOPs, and measured times in seconds (null = unsupported).

    `input_samples`: how many samples one input has, where that is known.
    """

    format: Literal["placewright.graph/1"]
    name: str
    ops: GraphOps
    tensors: Tensors
    copy_tensors: CopyTensors | None = None
    times: dict[str, list[Amount | None]] | None = None
    attributes: dict[str, Any] | None = None
    input_samples: Annotated[Count, Field(strict=True)] | None = None


# -- placewright.cluster/1 -------------------------------------------------------------------


class DeviceEntry(Strict):
    """A device. Figures left out come from the catalog entry of its `kind`."""

    name: Annotated[str, Field(min_length=1)]
    kind: Annotated[str, Field(min_length=1)]
    host: str = "host"
    memory: Memory | None = None
    peak_flops: dict[Dtype, Flops] | None = None
    memory_bandwidth: Bandwidth | None = None
    launch_overhead: Seconds | None = None
    compute_efficiency: Annotated[float, Field(gt=0, le=1)] | None = None
    memory_efficiency: Annotated[float, Field(gt=0, le=1)] | None = None
    multiprocessors: Count | None = None
    batch_sizes: Annotated[list[Count], Field(min_length=1)] | None = None
    run: RunEntry | None = None


class MeasuredEntry(Strict):
    """How a link was measured: the relative errors of latency + bytes / bandwidth."""

    transport: Literal["shared", "gloo", "thread", "copy"]
    median_error: Annotated[float, Field(ge=0)]
    largest_error: Annotated[float, Field(ge=0)]


class LinkEntry(Strict):
    """A link between two devices or switches."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    bandwidth: LinkBandwidth
    reverse_bandwidth: LinkBandwidth | None = None
    latency: Seconds = 0.0
    duplex: Literal["full", "half"] = "full"
    channel: str | None = None
    measured: MeasuredEntry | None = None


class ClusterFile(Strict):
    """Devices and links: bytes, bytes per second, seconds; or text with a unit ("16 GiB")."""

    format: Literal["placewright.cluster/1"]
    name: str
    description: str = ""
    routing: Literal["widest", "direct"] = "widest"
    host_memory: str = ""
    devices: Annotated[list[DeviceEntry], Field(min_length=1)]
    switches: list[str] = []
    links: list[LinkEntry] = []


# -- placewright.plan/1 ----------------------------------------------------------------------


class ProblemOps(Strict):
    """Columns: one entry per op; `time` in seconds, one list per op, null = unsupported.

    `cost_source[op][device]` says where a time comes from: 0 datasheet, 1 predicted, 2 regressed,
    3 measured, 4 given with the graph; `cost_spread[op][device]` how far it may be off, the
    standard deviation of its log. `cache` bytes of `memory` are a KV cache, `stash`
    bytes are activations that each micro-batch in flight takes again.

    `time[op]` has an entry per device, or per column where `devices.time_column` says which
    column is whose.
    """

    name: Annotated[list[str], Field(min_length=1)]
    type: list[str] | None = None
    module: list[str] | None = None
    time: list[list[Amount | None]]
    memory: list[Amount]
    backward: list[bool] | None = None
    twin: list[Index] | None = None
    colocation: list[Index] | None = None
    pinned: list[Index] | None = None
    sync_bytes: list[Amount] | None = None
    cache: list[Amount] | None = None
    copied: list[Amount] | None = None
    stash: list[Amount] | None = None
    cost_source: list[list[Index]] | None = None
    cost_spread: list[list[Amount]] | None = None


class Ways(Strict):
    """Routes of many devices, of which many go the same way.

    Devices of one `group` (`group[device]`) have the same ways to and from all others:
    ``way[g][h]`` is the number of the way from a device of g to another one of h, -1 where there
    is no other. A way has a `latency` (seconds) and `seconds_per_byte`. A transfer from a to b by
    way w uses the channels ``leaving[a][w]`` and ``arriving[b][w]``, and where ``between[w]`` is
    not empty those it lists for the pair besides: one list for each pair of devices of this way,
    by a and then b. All of them together, in rising order, are the route's channels.
    """

    group: list[OpNumber]
    way: list[list[Index]]
    latency: list[Amount]
    seconds_per_byte: list[Amount]
    leaving: list[list[list[OpNumber]]]
    arriving: list[list[list[OpNumber]]]
    between: list[list[list[OpNumber]]]


class Routes(Strict):
    """`latency[a][b]` seconds, `seconds_per_byte[a][b]`; `channels[a][b]` the channels used.

    Or `ways` in place of these three. With staging ``host``: `host_latency[way][device]`,
    `host_seconds_per_byte[way][device]`, way 0 to host memory and way 1 from it.
    """

    latency: list[list[Amount]] | None = None
    seconds_per_byte: list[list[Amount]] | None = None
    channels: list[list[list[OpNumber]]] | None = None
    ways: Ways | None = None
    channel_names: list[str]
    staging: Literal["direct", "host"] = "direct"
    host_latency: list[list[Amount]] | None = None
    host_seconds_per_byte: list[list[Amount]] | None = None

    @model_validator(mode="after")
    def _one_of_two_forms(self) -> Self:
        for name in ("latency", "seconds_per_byte", "channels"):
            if (getattr(self, name) is None) == (self.ways is None):
                raise ValueError(
                    f"{name} is {'missing' if self.ways is None else 'given besides ways'}; "
                    "give latency, seconds_per_byte and channels, or ways in their place"
                )
        return self


class ProblemDevices(Strict):
    """Columns: one entry per device; `time_column` its column of `ops.time` and `batches.time`.

    Without `time_column` every device has a column of its own. `run` says what a device is on the
    machine the plan was made for, null where it is not said; `host` which machine it is part of,
    where there are several.
    """

    name: list[str]
    kind: list[str]
    memory: list[Amount | None]
    cpu: list[bool] | None = None
    time_column: list[OpNumber] | None = None
    run: list[RunEntry | None] | None = None
    host: list[str] | None = None


class ProblemOptions(Strict):
    """The objective and the options that belong to it."""

    objective: str
    transfer_unit: Literal["tensor", "edge"] | None = None
    contention: Literal["none", "port", "link"] | None = None
    memory: Literal["resident", "peak"] | None = None
    load: Literal["sum", "overlap", "duplex"] | None = None
    contiguous: bool | None = None
    schedule: Literal["pipedream", "gpipe"] | None = None
    replicate: bool | None = None
    shares: Literal["equal", "unequal"] | None = None
    subgraphs: Count | None = None
    batch: Count | None = None
    micro_batches: Count | None = None
    data_parallel: Count | None = None


class BatchTimes(Strict):
    """`time[op][device][size]` seconds for a batch of ``sizes[size]``, null = not allowed.

    With `devices.time_column`, ``time[op][column][size]``.
    """

    sizes: list[Count]
    time: list[list[list[Amount | None]]]


class ProblemEntry(Strict):
    name: str
    options: ProblemOptions
    ops: ProblemOps
    tensors: Tensors
    devices: ProblemDevices
    routes: Routes
    batches: BatchTimes | None = None
    input_samples: Count | None = None


class TransfersEntry(Strict):
    """Columns; `consumer` is -1 where one transfer serves every consumer on the target."""

    tensor: list[OpNumber]
    consumer: list[Index]
    source: list[OpNumber]
    target: list[OpNumber]
    start: list[Amount]
    finish: list[Amount]


class ScheduleEntry(Strict):
    """Objective ``latency``: seconds from the start of the run."""

    op_start: list[Amount]
    op_finish: list[Amount]
    transfers: TransfersEntry


class StepEntry(Strict):
    """With option `micro_batches`: `seconds` of a step, and columns with an entry per stage."""

    seconds: Amount
    in_flight: list[Count]
    idle: list[Amount]


class LoadsEntry(Strict):
    """Objective ``throughput``: seconds per input, ``[way][device]`` or ``[device]``."""

    compute: list[list[Amount]]
    incoming: list[list[Amount]]
    outgoing: list[list[Amount]]
    sync: list[Amount]
    load: list[Amount]
    step: StepEntry | None = None


class InvocationTableEntry(Strict):
    """Columns; seconds."""

    device: list[OpNumber]
    subgraph: list[OpNumber]
    start: list[Amount]
    incoming: list[Amount]
    compute: list[Amount]
    outgoing: list[Amount]


class InvocationsEntry(Strict):
    """Objective ``invocation-latency``: `op_finish` is when an output is in host memory."""

    op_finish: list[Amount]
    invocations: InvocationTableEntry


class BatchesEntry(Strict):
    """Columns: batches of `size` inputs."""

    op: list[OpNumber]
    device: list[OpNumber]
    size: list[Count]
    start: list[Amount]
    finish: list[Amount]


class BatchTransfersEntry(TransfersEntry):
    """Columns as of a schedule's transfers, and how many inputs' tensors go together."""

    inputs: list[Count]


class BatchScheduleEntry(Strict):
    """Objective ``batch-throughput``: seconds from the start of the run."""

    batches: BatchesEntry
    transfers: BatchTransfersEntry


class PlannerEntry(Strict):
    name: str
    seed: int
    options: dict[str, str] = {}
    coarsening: str = "none"


class HistoryEntry(Strict):
    """How planning went: columns, one entry each time that a better plan or bound was found.

    `seconds` since it began; `value` (null before there was a plan) and `lower_bound` then.
    """

    seconds: list[Amount]
    value: list[Amount | None]
    lower_bound: list[Amount]


class PlanFile(Strict):
    """A plan with the whole problem it answers, so that anyone can judge it.

    `placement[op]` is a device, or for ``batch-throughput`` a list of one device per input. What
    the placement comes to is in the one of `schedule`, `loads`, `invocations` and `batches` that
    belongs to the objective.
    """

    format: Literal["placewright.plan/1"]
    version: str
    source: str
    planner: PlannerEntry
    value: Amount
    lower_bound: Amount
    bound_source: str
    status: Literal["optimal", "feasible"]
    placement: list[OpNumber] | list[list[OpNumber]]
    replicas: list[list[OpNumber]] | None = None
    replica_shares: list[list[Amount]] | None = None
    row: list[OpNumber] | None = None
    subgraph: list[Index] | None = None
    schedule: ScheduleEntry | None = None
    loads: LoadsEntry | None = None
    invocations: InvocationsEntry | None = None
    batches: BatchScheduleEntry | None = None
    history: HistoryEntry | None = None
    problem: ProblemEntry


# -- placewright.profiles/1 ------------------------------------------------------------------


class DeviceFiguresEntry(Strict):
    """What a measured device is said to reach: FLOP/s by dtype, and B/s; a GPU's SMs if known."""

    peak_flops: dict[str, Amount]
    memory_bandwidth: Amount
    is_cpu: bool
    multiprocessors: Count | None = None


class ProfileGroupEntry(Strict):
    """What was measured on a device in a version of a library. Columns: one entry per op.

    `seconds` is the median, `low` and `high` are the 5th and 95th percentile; `memory` is in bytes,
    0 where it is not known; `measured_at` is ISO 8601 in UTC, such as 2026-07-01T12:00:00Z. What
    the op does: `flops`, `bytes_read` and `bytes_written`, computed in `dtype` (empty: not known),
    where calls since the last one of the same op read and wrote `bytes_before`.
    """

    device: str
    library: str
    figures: DeviceFiguresEntry | None = None
    signature: list[str]
    seconds: list[Amount]
    low: list[Amount]
    high: list[Amount]
    samples: list[Annotated[int, Field(ge=1, le=2**53)]]
    method: list[Literal["context", "isolated", "regressed", "run"]]
    memory: list[Amount]
    measured_at: list[Annotated[str, Field(min_length=1)]]
    flops: list[Amount] | None = None
    bytes_read: list[Amount] | None = None
    bytes_written: list[Amount] | None = None
    dtype: list[str] | None = None
    bytes_before: list[Amount] | None = None


class ProfiledProgramEntry(Strict):
    """A source that was profiled, and how often it makes each call."""

    name: str
    library: str
    calls: dict[str, Annotated[int, Field(ge=1, le=2**53)]]


class ProfilesFile(Strict):
    """Measured costs: a group for each device and library, and the programs they came from."""

    format: Literal["placewright.profiles/1"]
    groups: list[ProfileGroupEntry]
    programs: list[ProfiledProgramEntry] = Field(default_factory=list)


FORMATS: dict[str, type[BaseModel]] = {
    "graph": GraphFile,
    "cluster": ClusterFile,
    "plan": PlanFile,
    "profiles": ProfilesFile,
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of the file format `name`: graph, cluster, plan or profiles."""
    if name not in FORMATS:
        raise OptionError(f"no file format '{name}'; there are {', '.join(FORMATS)}")
    return FORMATS[name].model_json_schema()
