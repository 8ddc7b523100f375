"""Plans for ONNX files: any placement, in any order that the model allows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link
from placewright.errors import PlacewrightWarning
from placewright.plan import Placement, Plan
from placewright.planning import make_problem
from placewright.runtime import RunOptions
from placewright.simulate import evaluate
from placewright.simulate.latency import dispatch_placement

Run = CpuRun | CudaRun | None
ONCE = RunOptions(repeats=1, clocked=0)


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def cluster_of(*runs: Run) -> Cluster:
    """CPUs called ``cpu0``, ``cpu1`` …, all joined."""
    devices = [Device(f"cpu{k}", "EPYC 7763", memory=1e9, run=run) for k, run in enumerate(runs)]
    names = [device.name for device in devices]
    links = tuple(Link(a, b, 1e9) for number, a in enumerate(names) for b in names[number + 1 :])
    return Cluster("cpus", tuple(devices), links)


def plan_of(
    source: str | Path,
    device: Any = None,
    *runs: Run,
    seed: int | None = None,
    objective: str = "latency",
) -> Plan:
    """A plan that puts op number k on ``device[k]``, of as many devices as `runs` (or two).

    From a `seed`, ops that are not given a device are put anywhere, and the order of the ops is
    any legal one.
    """
    options: dict[str, Any] = {"objective": objective}
    if objective == "throughput":
        options["contiguous"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlacewrightWarning)
        problem, name = make_problem(str(source), cluster_of(*(runs or (None, None))), options)
    generator = np.random.default_rng(seed)
    if device is None:
        device = generator.integers(0, problem.device_count, problem.op_count)
    placement = Placement(np.asarray(device, np.int32))
    if objective == "latency":
        rank = None if seed is None else generator.permutation(problem.op_count)
        placement = dispatch_placement(problem, placement.device, rank)
    outcome = evaluate(problem, placement)
    return Plan(
        problem=problem,
        placement=placement,
        outcome=outcome,
        value=outcome.value,
        lower_bound=0.0,
        bound_source="none",
        planner="random",
        source=name,
    )
