"""What a plan asks for: the model, the devices of this machine, and the program of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placewright.errors import InputError, OptionError
from placewright.importers.kinds import open_source
from placewright.importers.onnx.dimensions import read_sizes
from placewright.importers.onnx.reading import OnnxModel, read_model
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.onnx_sessions.cutting import SubModel, Uses, cut, cut_in_runs
from placewright.runtime.onnx_sessions.passes import Program
from placewright.runtime.onnx_sessions.stages import in_stages
from placewright.runtime.onnx_sessions.team import Device
from placewright.runtime.plans import check_turns, cores_of, device_threads, schedule_order
from placewright.runtime.run_options import RunOptions

_SAMPLES = 5  # of a pipeline, for each device: one to fill it, the others to measure


def check_plan(plan: Plan) -> None:
    """OptionError for a plan that cannot be run."""
    objective = plan.problem.options.objective
    if objective not in ("latency", "throughput"):
        raise OptionError(
            f"the plan is for {objective}, and of ONNX models only plans for latency and "
            "throughput are run so far; plan with --objective latency"
        )
    check_turns(plan)


def check_options(options: RunOptions, ranks: int) -> None:
    """OptionError for what cannot be asked of a run of an ONNX model."""
    options.check(ranks)
    if options.optimizer is not None:
        raise OptionError("ONNX models take no training steps; leave the optimizer out")
    refused = {
        "weights": options.weights is not None,
        "memory limits": bool(options.memory_limits),
        "tokens": options.decoding is not None,
    }
    if named := [name for name, is_given in refused.items() if is_given]:
        raise OptionError(
            f"runs of ONNX models take no {named[0]}: an ONNX file has its weights and is run as "
            "it is; leave it out"
        )


def model_of(plan: Plan) -> OnnxModel:
    """The model that the plan is for; InputError where its file holds another by now."""
    file = open_source(plan.source)
    if file.kind != "onnx":
        raise OptionError(f"the plan's source '{plan.source}' is no ONNX model; plan one")
    sizes = read_sizes(file.query, file.path)
    found = read_model(file.path, dimensions=sizes, content=file.content)
    differing = sorted(set(plan.problem.op_names) ^ found.nodes.keys())
    if differing:
        where = "model" if differing[0] in found.nodes else "plan"
        raise InputError(
            f"op '{differing[0]}' is only in the {where}: {file.path} is not the model that was "
            "planned; plan it again"
        )
    return found


def devices_of(problem: Problem, used: Sequence[int], options: RunOptions) -> list[Device]:
    """What each device that is used is here, in the order of the ranks."""
    cores = list(options.rank_cores) or [cores_of(problem, device) for device in used]
    threads = options.threads
    if threads is None:
        unpinned = device_threads(problem, used)
        threads = [len(mine) or unpinned for mine in cores]
    elif isinstance(threads, int):
        threads = [threads] * len(used)
    return [
        Device(problem.device_names[device], count, tuple(mine))
        for device, count, mine in zip(used, threads, cores, strict=True)
    ]


def program_of(found: OnnxModel, plan: Plan, used: Sequence[int]) -> Program:
    rank_of = {
        op: used.index(device)
        for op, device in zip(plan.problem.op_names, plan.placement.device.tolist(), strict=True)
    }
    uses = {
        name: Uses(tuple(op.reads), tuple(filter(None, op.node.output)))
        for name, op in found.ops.items()
    }
    returned = tuple(dict.fromkeys(value.name for value in found.model.graph.output))
    if plan.problem.options.objective == "latency":
        parts, samples = cut(schedule_order(plan), rank_of, uses, returned), 1
    else:
        order = in_stages(list(found.ops), rank_of, uses)
        parts, samples = cut_in_runs(order, rank_of, uses, returned), _SAMPLES * len(used)
    constants = tuple(name for name in returned if name in found.scope.constants)
    if constants:  # handed out by a sub-model, of no op if there is none
        first = parts[0] if parts else SubModel(0, (), (), ())
        parts[:1] = [replace(first, gives=(*first.gives, *constants))]
    replicas = {
        used.index(stage[0]): [used.index(device) for device in stage]
        for stage in plan.placement.replicas
    }
    return Program.of(parts, len(used), returned, samples, replicas)
