"""`judge`: what a placement comes to that another tool, or a person, has made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from placewright import planners
from placewright.costs.roofline import CostOptions, Kernels
from placewright.errors import OptionError
from placewright.formats import files
from placewright.formats.placements import PlacementFile, parse_placement
from placewright.graph import Ints
from placewright.plan import Plan
from placewright.planning import DEFAULT_COSTS, Source, imported, make_problem
from placewright.problem import Problem
from placewright.solving import solve
from placewright.system.references import referred
from placewright.whatif.judging.device_maps import as_dispatched, is_device_map, ops_of_map
from placewright.whatif.judging.layers import ops_of_partition, ops_of_tensor_split

PLANNER = "expert"


@dataclass(frozen=True)
class Given:
    """A placement as a person gives it: one of a file, shares of llama.cpp, layers per stage."""

    placement: str | Path | None = None
    tensor_split: str | None = None
    gpu_layers: int | None = None
    layer_partition: str | None = None

    def check(self) -> None:
        """OptionError unless it is just one."""
        ways = {
            "--placement": self.placement,
            "--tensor-split": self.tensor_split,
            "--layer-partition": self.layer_partition,
        }
        given = [name for name, value in ways.items() if value is not None]
        if self.gpu_layers is not None and self.tensor_split is None:
            raise OptionError("-ngl goes with -ts, the shares of the devices; of one GPU -ts 1")
        if len(given) != 1:
            raise OptionError(
                f"give a placement in one way: {' or '.join(given if given else ways)}"
            )

    @property
    def told(self) -> dict[str, str]:
        """What a plan file says of it."""
        facts = {
            "file": self.placement,
            "tensor_split": self.tensor_split,
            "gpu_layers": self.gpu_layers,
            "layer_partition": self.layer_partition,
        }
        return {name: str(value) for name, value in facts.items() if value is not None}


@dataclass(frozen=True, eq=False)
class Judgement:
    """`plan` has the placement, its value and the bound; `remarks` what had to be read into it."""

    plan: Plan
    remarks: tuple[str, ...]


def judge(
    source: Source,
    cluster: Any,
    given: Given,
    *,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    **asked: Any,
) -> Judgement:
    """Value a placement as if it were a plan: timed, bounded and verified.

    Ops cost what they do in the engine that the placement is for. The rest goes to
    `planning.make_problem`. Raises InputError for what cannot be read, InfeasibleError where the
    placement does not fit, with the arithmetic.

    >>> judge("zoo:gpt2", "2x3090", Given(layer_partition="6,6")).plan.status   # doctest: +SKIP
    'feasible'
    """
    given.check()
    document = files.read_document(Path(given.placement)) if given.placement is not None else None
    if not isinstance(source, Problem):
        source = imported(source, training=training)
        if costs.kernels == "auto" and not source.graph.is_training:
            costs = replace(costs, kernels=_kernels(given, document))
        training = False  # it is read
    problem, name = make_problem(source, cluster, training=training, costs=costs, **asked)
    read = _read(problem, given, document)
    row = planners.entry(PLANNER, problem.options.objective)
    planner = referred(row.home)(file=read.where, content=read.content)
    told = {**given.told, **read.told}
    plan = solve(read.problem, planner, planner_options=told, source=name)
    return Judgement(plan, tuple(read.remarks))


def _kernels(given: Given, document: Any) -> Kernels:
    """How the engine runs a model that a placement is for, if it says which."""
    if given.placement is None:  # llama.cpp, or vLLM
        return "fused"
    return "program" if is_device_map(document) else "auto"


@dataclass(frozen=True, eq=False)
class _Read:
    """The problem as the placement is run, what is where, what errors call it, and what to say."""

    problem: Problem
    content: PlacementFile
    where: str
    remarks: list[str]
    told: dict[str, str] = field(default_factory=dict)


def _read(problem: Problem, given: Given, document: Any) -> _Read:
    if given.tensor_split is not None:
        problem, device, remarks = ops_of_tensor_split(
            problem, given.tensor_split, given.gpu_layers
        )
        return _Read(problem, _by_op(problem, device), f"-ts {given.tensor_split}", remarks)
    if given.layer_partition is not None:
        problem, device, remarks = ops_of_partition(problem, given.layer_partition)
        where = f"--layer-partition {given.layer_partition}"
        return _Read(problem, _by_op(problem, device), where, remarks)
    assert given.placement is not None
    path = Path(given.placement)
    if is_device_map(document):
        device, remarks = ops_of_map(problem, document, path)
        problem, helper, remark = as_dispatched(problem, device)
        told = {"offload": helper} if helper else {}
        remarks += [remark] if remark else []
        return _Read(problem, _by_op(problem, device), str(path), remarks, told)
    return _Read(problem, parse_placement(document, path), str(path), [])


def _by_op(problem: Problem, device: Ints) -> PlacementFile:
    names = [problem.device_names[each] for each in device.tolist()]
    return PlacementFile(dict(zip(problem.op_names, names, strict=True)), exact=True)
