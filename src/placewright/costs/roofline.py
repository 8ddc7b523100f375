"""From a graph and a cluster to a `Problem`: times by the roofline model, memory, routes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Cluster, Device, naming_file
from placewright.costs.batches import batch_times, roofline
from placewright.costs.catalog import complete, is_cpu, is_same_kind
from placewright.costs.fused_kernels import with_fused_kernels
from placewright.costs.links import host_routes, routes
from placewright.costs.profiles.lookup import USERS, Found, is_there, measured_seconds
from placewright.costs.step import once_per_step
from placewright.errors import (
    ClusterError,
    OptionError,
    PlacewrightWarning,
    ProvedInfeasibleError,
)
from placewright.graph import ITEM_BYTES, WHOLE_MEMORY, Floats, Graph, Ints
from placewright.options import Options, check_kind, check_mapping
from placewright.problem import (
    COST_SPREADS,
    DATASHEET,
    GIVEN,
    MEASURED,
    REGRESSED,
    Problem,
)
from placewright.stash import stashed_bytes, views
from placewright.units import listed, printable

if TYPE_CHECKING:
    from placewright.costs.prediction.predict import Predicted

Optimizer = Literal["sgd", "momentum", "adam"]
Recompute = Literal["none", "block", "needed"]
Kernels = Literal["auto", "program", "fused"]
Gradients = Literal["own", "fp32"]

HOST_MEMORIES = ("host-memory", "host memory")
"""What switches are called that are it, in files and where a machine is detected."""
SERVED = ("prefill", "decode")
"""The phases of a model that serves."""

_STATE_COPIES: Mapping[str, int] = {"sgd": 0, "momentum": 1, "adam": 2}
"""What an optimizer keeps per parameter, in fp32 or wider."""


@dataclass(frozen=True)
class CostOptions:
    """How costs are made.

    `optimizer`: what training keeps per parameter besides it: its gradient, in the parameter's
    own type; no state (``sgd``), one number (``momentum``) or two (``adam``), in fp32; and, with
    state and parameters narrower than fp32, an fp32 copy of the parameter.

    `profiles`: the store of measured times to look in (see `costs.profiles`): a file, None for
    no store, or `USERS` for the user's own, where there is one.

    `recompute`: whether training keeps all that the backward pass reads (``none``), or of each
    repeated unit what goes into it, and runs its forward ops again (``block``; see
    `coarsen.recompute`); or so of as few units as must for a plan to fit (``needed``: for an engine
    with steps of micro-batches).

    `kernels`: whether each call is a kernel of its own (``program``), as PyTorch runs a program, or
    some are one (``fused``), as in engines that serve (see `costs.fused_kernels`). ``auto`` is
    ``fused`` for a graph of prefill or decode, and ``program`` for any other.

    `gradients`: whether training keeps, and replicas exchange, a gradient in the type of its
    parameter (``own``), or those of bf16 in ``fp32``, as Megatron-LM and DeepSpeed do.
    """

    optimizer: Optimizer = "adam"
    profiles: str | Path | None = USERS
    recompute: Recompute = "none"
    kernels: Kernels = "auto"
    gradients: Gradients = "own"

    def __post_init__(self) -> None:
        if self.optimizer not in _STATE_COPIES:
            raise OptionError(f"optimizer is '{self.optimizer}'; choose {', '.join(_STATE_COPIES)}")
        if self.recompute not in get_args(Recompute):
            raise OptionError(
                f"recompute is '{self.recompute}'; choose {', '.join(get_args(Recompute))}"
            )
        if self.kernels not in get_args(Kernels):
            raise OptionError(f"kernels is '{self.kernels}'; choose {', '.join(get_args(Kernels))}")
        if self.gradients not in get_args(Gradients):
            raise OptionError(
                f"gradients is '{self.gradients}'; choose {', '.join(get_args(Gradients))}"
            )
        check_kind(self.profiles, (str, Path, type(None)), "profiles", "a file, 'user' or None")


def build_problem(
    graph: Graph,
    cluster: Cluster,
    options: Options,
    costs: CostOptions,
    pinned: Mapping[str, str] | None = None,
    *,
    together: bool = False,
) -> Problem:
    """The problem of running `graph` on `cluster`; `pinned` fixes ops (by name) to devices.

    Ops of a pipeline have a copy each of the weights they share, where that can fit; else, with
    `together`, and in training where stages need not be contiguous, such ops are on one device.

    Recomputation is of blocks, which `planning.make_problem` knows; OptionError for it here.

    Raises ClusterError for a device with neither measured times nor figures, or no route to
    another; OptionError for a pinned op or device that does not exist.
    """
    for value, kind, hint in (
        (graph, Graph, "load(source).graph"),
        (cluster, Cluster, "load_cluster(name)"),
        (options, Options, "Options(...)"),
        (costs, CostOptions, "CostOptions(...)"),
    ):
        if not isinstance(value, kind):
            raise OptionError(f"build_problem takes {hint}, and was given {value!r}")
    check_mapping(pinned, "pinned", "{'embedding': 'gpu0'}")
    check_kind(together, bool, "together", "True or False")
    if costs.recompute != "none":
        raise OptionError(
            "build_problem makes problems without recomputation; let plan or "
            "planning.make_problem make it"
        )
    return changed_problem(graph, cluster, options, costs, pinned or {}, together)


def changed_problem(
    graph: Graph,
    cluster: Cluster,
    options: Options,
    costs: CostOptions,
    pinned: Mapping[str, str],
    together: bool,
    change: Callable[[Problem], Problem] = lambda problem: problem,
    least: Callable[[Problem], Problem] = lambda problem: problem,
) -> Problem:
    """`build_problem`, changed; copies of weights fit where they do in the `least` of that."""
    with naming_file(cluster):
        cluster = complete(cluster)
        graph = _with_kernels(_with_times_of(graph, cluster), costs)
        problem = _problem(graph, cluster, options, costs, pinned)
    pays = options.contiguous or not graph.is_training  # else ops between run anywhere as it is
    may_copy = options.objective == "throughput" and pays and not together
    if may_copy and graph.may_copy:
        copying = _with_copies(problem, graph.with_copies(), costs)
        with suppress(ProvedInfeasibleError):
            changed = change(once_per_step(copying, graph))
            least(changed).check_feasible()
            return changed
    return change(once_per_step(problem, graph))


def _with_kernels(graph: Graph, costs: CostOptions) -> Graph:
    """The graph with the costs of the kernels that it is run by."""
    if costs.kernels == "fused" and graph.is_training:
        raise OptionError(
            "kernels fused is for inference, which engines that serve do; leave it out, or leave "
            "out training"
        )
    is_served = graph.attributes.get("phase") in SERVED
    if costs.kernels == "fused" or (costs.kernels == "auto" and is_served):
        return with_fused_kernels(graph)
    return graph


def _with_times_of(graph: Graph, cluster: Cluster) -> Graph:
    """The graph with its times under the kinds as the cluster's devices write them.

    Those of batches are named ``KIND@SIZE``. A remark tells of times that no device uses.
    """
    if not graph.times:
        return graph
    kinds = {device.kind for device in cluster.devices}
    times: dict[str, Floats] = {}
    as_written_first = sorted(graph.times, key=lambda name: name.partition("@")[0] not in kinds)
    for name in as_written_first:
        seconds = graph.times[name]
        kind, at, size = name.partition("@")
        alike = [each for each in kinds if is_same_kind(each, kind)] if kind not in kinds else []
        for each in alike or [kind]:
            times.setdefault(f"{each}{at}{size}", seconds)
    if not kinds & {name.partition("@")[0] for name in times}:
        warnings.warn(
            printable(
                f"{graph.name} has times for {listed(list(graph.times))}, and the devices are of "
                f"kind {listed(sorted(kinds))}: none of these times is used"
            ),
            PlacewrightWarning,
            stacklevel=3,
        )
    return graph if times.keys() == graph.times.keys() else replace(graph, times=times)


def _with_copies(problem: Problem, graph: Graph, costs: CostOptions) -> Problem:
    """The problem of `graph`, which has copies of weights; ops and devices are as before."""
    memory = op_memory(graph, problem.options, costs)
    return replace(
        problem,
        op_memory=memory,
        op_copied=np.maximum(memory - problem.op_memory, 0.0),
        colocation=graph.colocation,
        op_sync_bytes=_sync_bytes(graph, costs),
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes,
        consumer_offsets=graph.consumer_offsets,
        consumers=graph.consumers,
    )


def _problem(
    graph: Graph,
    cluster: Cluster,
    options: Options,
    costs: CostOptions,
    pinned: Mapping[str, str],
) -> Problem:
    paths = routes(cluster)
    times, sources, spreads = _op_times(graph, cluster, costs.profiles)
    return Problem(
        name=f"{graph.name} on {cluster.name}",
        op_names=graph.op_names,
        op_types=graph.op_types,
        op_modules=graph.op_modules,
        op_time=times,
        op_cost_source=sources,
        op_cost_spread=spreads,
        op_memory=op_memory(graph, options, costs),
        is_backward=graph.is_backward,
        forward_twin=graph.forward_twin,
        colocation=graph.colocation,
        op_pinned=_pins(graph, cluster, pinned),
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes,
        consumer_offsets=graph.consumer_offsets,
        consumers=graph.consumers,
        device_names=cluster.device_names,
        device_kinds=tuple(device.kind for device in cluster.devices),
        device_memory=np.array([_memory(device) for device in cluster.devices]),
        link_latency=paths.link_latency,
        link_seconds_per_byte=paths.link_seconds_per_byte,
        channel_offsets=paths.channel_offsets,
        channels=paths.channels,
        channel_names=paths.channel_names,
        options=options,
        is_cpu=np.array([is_cpu(device) for device in cluster.devices]),
        op_sync_bytes=_sync_bytes(graph, costs),
        input_samples=graph.input_samples,
        op_cache=_caches(graph),
        op_stash=_stashes(graph, options),
        device_runs=tuple(device.run for device in cluster.devices),
        device_hosts=tuple(device.host for device in cluster.devices),
        **_staging(cluster, options),
        **_batches(graph, cluster, options),
    )


def _sync_bytes(graph: Graph, costs: CostOptions) -> Floats:
    """`[op]` gradients of weights that replicas of the op keep equal."""
    return gradient_bytes(graph, costs) if graph.is_training else np.zeros(graph.op_count)


def gradient_bytes(graph: Graph, costs: CostOptions) -> Floats:
    """`[op]` of the parameters it holds; their type is taken for the op's."""
    if costs.gradients == "own":
        return graph.op_parameter_bytes
    is_bf16 = np.array(graph.op_dtypes) == "bf16"
    wider = ITEM_BYTES["fp32"] / ITEM_BYTES["bf16"]
    found: Floats = graph.op_parameter_bytes * np.where(is_bf16, wider, 1.0)
    return found


def _caches(graph: Graph) -> Floats:
    """`[op]` bytes of KV cache: the state of a model that serves; empty for any other."""
    serves = graph.attributes.get("phase") in ("prefill", "decode", "generate")
    return graph.op_state_bytes if serves and graph.op_state_bytes.any() else np.empty(0)


def _stashes(graph: Graph, options: Options) -> Floats:
    """`[op]` bytes that a pipeline keeps for each micro-batch; empty where nobody says."""
    pipelines = graph.is_training and options.objective == "throughput"
    if not pipelines or graph.attributes.get(WHOLE_MEMORY):
        return np.empty(0)
    return stashed_bytes(graph, views(graph))


def _staging(cluster: Cluster, options: Options) -> dict[str, Any]:
    if options.objective == "invocation-latency":
        cluster = replace(cluster, host_memory=_host_memory(cluster))
    if not cluster.host_memory:
        return {}
    latency, per_byte = host_routes(cluster)
    return {"staging": "host", "host_latency": latency, "host_seconds_per_byte": per_byte}


def _host_memory(cluster: Cluster) -> str:
    """That of the cluster, else a switch called so, else the first CPU's; none, with a remark.

    A switch called so is how desktops are written whose CPU is not among the devices.
    """
    called = (name for name in cluster.switches if name in HOST_MEMORIES)
    cpus = (device.name for device in cluster.devices if is_cpu(device))
    if found := cluster.host_memory or next(called, "") or next(cpus, ""):
        return found
    warnings.warn(
        printable(
            f"cluster '{cluster.name}' has neither host_memory nor a CPU, so that reading and "
            "writing host memory takes no time; add host_memory: NAME, a device or switch, to its "
            "file"
        ),
        PlacewrightWarning,
        stacklevel=3,
    )
    return ""


def _batches(graph: Graph, cluster: Cluster, options: Options) -> dict[str, Any]:
    if options.objective != "batch-throughput":
        return {}
    sizes, times = batch_times(graph, cluster, options.batch)
    return {"batch_sizes": sizes, "batch_time": times}


def _op_times(
    graph: Graph, cluster: Cluster, profiles: str | Path | None
) -> tuple[Floats, NDArray[np.int8], Floats]:
    """`[op, device]` seconds, the `COST_SOURCES` number of each, and its spread.

    Times that came with the graph go before all others; then comes what was measured on the
    device, then what follows from other measurements, then its datasheet. There are no spreads
    where they follow from the sources.
    """
    measurable = [device for device in cluster.devices if device.kind not in graph.times]
    measured: dict[str, Found] = {}
    predicted: dict[str, Predicted] = {}
    if measurable and is_there(profiles):
        from placewright.costs.prediction.predict import predicted_seconds  # imports the store

        measured = measured_seconds(graph, measurable, profiles)
        lacking = [
            device
            for device in measurable
            if device.name not in measured or np.isnan(measured[device.name].seconds).any()
        ]
        predicted = predicted_seconds(graph, lacking, profiles)
    columns = [
        _column(graph, device, measured.get(device.name), predicted.get(device.name))
        for device in cluster.devices
    ]
    times, sources, spreads = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
    return times, sources, spreads if measured or predicted else np.empty(0)


def _column(
    graph: Graph, device: Device, measured: Found | None, predicted: Predicted | None
) -> tuple[Floats, NDArray[np.int8], Floats]:
    """Seconds, sources and spreads of the ops on one device."""
    seconds = op_times(graph, device).copy()
    source = np.full(
        graph.op_count, GIVEN if device.kind in graph.times else DATASHEET, dtype=np.int8
    )
    spread = np.array(COST_SPREADS)[source]
    if predicted is not None:
        seconds, spread = predicted.seconds.copy(), predicted.spread.copy()
        source[:] = predicted.source
    if measured is not None:
        known = ~np.isnan(measured.seconds)
        seconds[known], spread[known] = measured.seconds[known], measured.spread[known]
        source[known] = np.where(measured.is_regressed[known], REGRESSED, MEASURED)
    return seconds, source, spread


def op_times(graph: Graph, device: Device) -> Floats:
    """`[op]` seconds on `device`: those the graph came with for its kind, else the roofline."""
    if device.kind in graph.times:
        return graph.times[device.kind]
    moved = graph.op_bytes_read + graph.op_bytes_written
    works = (graph.op_flops > 0) | (moved > 0)
    if graph.times and not works.any():
        raise ClusterError(
            f"device '{device.name}' of kind '{device.kind}': the graph has measured times"
            f"{_kinds_of(graph)} and no FLOPs to estimate others from; use devices of those kinds"
        )
    return roofline(graph, device, graph.op_flops, moved)


def op_memory(graph: Graph, options: Options, costs: CostOptions) -> Floats:
    """`[op]` bytes resident where the op is placed.

    Weights and state (a KV cache); in training also gradients and optimizer state, and, under
    memory ``resident``, the activations kept for the backward pass, at the op that makes them
    (under ``peak`` these are tensors with a life of their own). A graph whose bytes are said to
    be the whole memory (`graph.WHOLE_MEMORY`) needs no more than those.
    """
    memory = graph.op_parameter_bytes + graph.op_state_bytes
    if not graph.is_training or graph.attributes.get(WHOLE_MEMORY):
        return memory
    memory = memory + gradient_bytes(graph, costs) + _optimizer_state(graph, costs.optimizer)
    if options.memory != "resident":
        return memory
    return memory + stashed_bytes(graph, views(graph))


def _optimizer_state(graph: Graph, optimizer: str) -> Floats:
    """`[op]` bytes of optimizer state; the op's type is taken for that of its parameters."""
    copies = _STATE_COPIES[optimizer]
    item = np.array([ITEM_BYTES[dtype] for dtype in graph.op_dtypes])
    numbers = np.where((item < 4) & (copies > 0), copies + 1, copies)
    state: Floats = graph.op_parameter_bytes / item * numbers * np.maximum(item, 4.0)
    return state


def _memory(device: Device) -> float:
    if device.memory is None:
        raise ClusterError(
            f"device '{device.name}' of kind '{device.kind}' has no memory and its kind is not in "
            'the catalog; give memory (bytes, "16 GiB" or unlimited)'
        )
    return device.memory


def _kinds_of(graph: Graph) -> str:
    return f" (it has {', '.join(graph.times)})" if graph.times else ""


def _pins(graph: Graph, cluster: Cluster, pinned: Mapping[str, str]) -> Ints:
    pins = np.full(graph.op_count, -1, dtype=np.int32)
    for op, device in pinned.items():
        if op not in graph.op_index:
            raise OptionError(f"cannot pin '{op}': the graph has no op of that name")
        if device not in cluster.device_names:
            raise OptionError(
                f"cannot pin '{op}' to '{device}': the devices are "
                f"{', '.join(cluster.device_names)}"
            )
        pins[graph.op_index[op]] = cluster.device_names.index(device)
    return pins
