"""A plan of an ONNX file as stages: sub-models in the order in which they can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from placewright.errors import MissingExtraError, OptionError
from placewright.importers.onnx.reading import OnnxModel
from placewright.plan import Plan
from placewright.runtime.onnx_sessions.cutting import SubModel
from placewright.runtime.onnx_sessions.preparing import check_plan, model_of, program_of

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, eq=False)
class OnnxStages:
    """The `model` that a plan is for, and its sub-models; each reads only of those before it.

    `device[stage]` is the device of a sub-model.
    """

    plan: Plan
    model: OnnxModel
    parts: tuple[SubModel, ...]
    device: tuple[int, ...]

    @property
    def used(self) -> list[int]:
        """The devices that have a stage, by number."""
        return sorted(set(self.device))


def onnx_stages(plan: Plan, engine: str) -> OnnxStages:
    """The stages of a plan; OptionError for one of no ONNX file, or of batches or replicas."""
    if plan.source.startswith(("zoo:", "hf:", "torch:")) or not plan.source:
        raise OptionError(
            f"{engine} takes plans of ONNX files, and the plan is of {plan.source or 'no source'}; "
            "export the model to ONNX and plan FILE.onnx"
        )
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MissingExtraError("onnx", f"export to {engine}") from None
    check_plan(plan)
    if any(len(stage) > 1 for stage in plan.placement.replicas):
        raise OptionError(f"{engine}: the plan has stages with replicas; plan without --replicate")
    model = model_of(plan)
    used = plan.used_devices
    parts = _in_order(program_of(model, plan, used).parts)
    return OnnxStages(plan, model, parts, tuple(used[part.rank] for part in parts))


def _in_order(parts: Sequence[SubModel]) -> tuple[SubModel, ...]:
    maker = {name: number for number, part in enumerate(parts) for name in part.gives}
    needs = {
        number: [maker[name] for name in part.reads if name in maker]
        for number, part in enumerate(parts)
    }
    return tuple(parts[number] for number in TopologicalSorter(needs).static_order())


def add_types(
    model: ModelProto,
    found: OnnxModel,
    lasting: Mapping[str, tuple[int | None, ...]] | None = None,
) -> None:
    """Give inputs and outputs that have no type theirs, as the checker of ONNX asks.

    Sizes are left open: they may have been chosen for the plan, or depend on data. But those of
    vectors are given where they are `lasting`: Resize is not opened without the length of the
    vector that says its sizes.
    """
    for value in (*model.graph.input, *model.graph.output):
        constant = found.scope.constants.get(value.name)
        type = constant.type if constant else found.scope.types.get(value.name)
        tensor = value.type.tensor_type
        if type is None or tensor.HasField("shape"):
            continue
        tensor.elem_type = type.element
        tensor.shape.SetInParent()
        for _ in type.shape:
            tensor.shape.dim.add()
        length = (lasting or {}).get(value.name)
        if length is not None and len(type.shape) == len(length) == 1 and length[0] is not None:
            tensor.shape.dim[0].dim_value = length[0]
