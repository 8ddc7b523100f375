"""`Options`: what exactly is being minimised, and on what kind of machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from operator import index
from reprlib import Repr
from typing import Any, Literal, get_args

import numpy as np

from placewright.errors import OptionError
from placewright.objectives import OBJECTIVES, ObjectiveEntry

TransferUnit = Literal["tensor", "edge"]
Contention = Literal["none", "port", "link"]
Memory = Literal["resident", "peak"]
Load = Literal["sum", "overlap", "duplex"]
PipelineSchedule = Literal["pipedream", "gpipe"]
Shares = Literal["equal", "unequal"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "transfer_unit": get_args(TransferUnit),
    "contention": get_args(Contention),
    "memory": get_args(Memory),
    "load": get_args(Load),
    "schedule": get_args(PipelineSchedule),
    "shares": get_args(Shares),
}
"""What the options that are words may be."""

ADDED = ("shares", "micro_batches", "data_parallel")
"""Options that came after the first files: left out of them where they have their default, so that
files without them stay as they are."""
MOST_MICRO_BATCHES = 10_000  # each of which is timed
MOST = 2**31 - 1  # of anything that is counted; what plan files hold


@dataclass(frozen=True)
class Options:
    """What is minimised. `objectives.OBJECTIVES` says which options belong to which objective.

    Objective ``latency`` (of one input), and ``batch-throughput`` where noted:

    - `transfer_unit` (both): a ``tensor`` is sent once to each device that needs it, or once per
      consumer (``edge``: the papers' model);
    - `contention` (both): ``none``; ``port``: transfers that leave one device, or enter one, do
      not overlap (Moirai eq. 8); ``link``: transfers over one channel do not overlap;
    - `memory`: ``resident``: what the ops keep on a device fits it; ``peak``: weights stay,
      and each tensor lives from its production to its last use on that device.

    Objective ``batch-throughput`` (DiviML §IV-A): `batch`, the number L of inputs.

    Objective ``throughput`` (Tarnawski et al. §5): `load` of a device: computing and transfers
    one after another (``sum``), at once (``overlap``), or ways in and out apart too (``duplex``);
    `contiguous`: devices can be put in a row that data only goes along; `schedule` of training,
    ``pipedream`` (largest forward and backward load of a device) or ``gpipe`` (largest forward
    plus largest backward load); `replicate`: a stage may run on several devices, equally fast
    ones that take as many inputs each or, where `shares` are ``unequal``, any that can run its ops,
    each with a share of the inputs of its own; `micro_batches`: how many inputs make a step, after
    which the pipeline is empty (None: it is kept full); ``pipedream`` then is 1F1B, ``gpipe`` all
    forward and then all backward passes; `data_parallel`: how many pipelines of equal stages share
    the micro-batches of a step.

    Objective ``invocation-latency`` (Tarnawski et al. §4): `subgraphs`, the number q of
    contiguous subgraphs that an accelerator may hold.
    """

    objective: str = "latency"
    transfer_unit: TransferUnit = "tensor"
    contention: Contention = "link"
    memory: Memory = "resident"
    load: Load = "sum"
    contiguous: bool = True
    schedule: PipelineSchedule = "pipedream"
    replicate: bool = False
    shares: Shares = "equal"
    subgraphs: int = 1
    batch: int = 1
    micro_batches: int | None = None
    data_parallel: int = 1

    def __post_init__(self) -> None:
        check_objective(self.objective)
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise OptionError(
                    f"{_written(name)} is '{getattr(self, name)}'; choose {', '.join(allowed)}"
                )
        for name in ("subgraphs", "batch", "micro_batches", "data_parallel"):
            value = getattr(self, name)
            if value is None and name == "micro_batches":
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
                raise OptionError(f"{_written(name)} is '{value}'; give a whole number above 0")
            if int(value) > MOST:
                raise OptionError(f"{_written(name)} is '{value}'; give at most {MOST}")
            object.__setattr__(self, name, int(value))  # NumPy's, which no file can hold
        for name in ("contiguous", "replicate"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise OptionError(f"{_written(name)} is '{value}'; give true or false")
            object.__setattr__(self, name, bool(value))
        for field in fields(self):
            used = field.name in ("objective", *self.row.options)
            if not used and getattr(self, field.name) != field.default:
                raise OptionError(_misplaced(field.name, self.objective))
        if self.shares == "unequal" and not self.replicate:
            raise OptionError(
                "shares is 'unequal', and without replicas there is nothing to share; give "
                "replicate too, or leave shares out"
            )
        if self.micro_batches is not None:
            self._check_steps(self.micro_batches)
        elif self.data_parallel > 1:
            raise OptionError(
                f"data-parallel is '{self.data_parallel}', and pipelines share the micro-batches "
                "of a step; give micro-batches too, or leave data-parallel out"
            )

    def _check_steps(self, count: int) -> None:
        """OptionError for what a step of micro-batches is not timed with."""
        if count > MOST_MICRO_BATCHES:
            raise OptionError(f"micro-batches is '{count}'; give at most {MOST_MICRO_BATCHES}")
        for name, needed in (("load", "sum"), ("contiguous", True), ("replicate", False)):
            if getattr(self, name) != needed:
                raise OptionError(
                    f"micro-batches go through a row of stages that compute, receive and send in "
                    f"turn; leave out option {name}, or micro-batches"
                )
        if count % self.data_parallel:
            raise OptionError(
                f"micro-batches is '{count}', which {self.data_parallel} pipelines do not share "
                f"evenly; give a multiple of {self.data_parallel}, or another data-parallel"
            )

    @property
    def pipeline_micro_batches(self) -> int | None:
        """The micro-batches of a step that one pipeline does."""
        count = self.micro_batches
        return None if count is None else count // self.data_parallel

    @property
    def row(self) -> ObjectiveEntry:
        """What belongs to the objective."""
        return OBJECTIVES[self.objective]

    def require_latency(self, what: str, why: str = "") -> None:
        """OptionError for another objective: only latency has one schedule of one input."""
        if self.objective != "latency":
            raise OptionError(f"{what} for objective latency, not for {self.objective}{why}")

    def require_full_pipeline(self, what: str) -> None:
        """OptionError for steps of micro-batches, which only plans for engines are about."""
        if self.micro_batches is not None:
            raise OptionError(
                f"{what} is for pipelines that are kept full; steps of micro-batches are "
                "planned for an engine: add --for megatron, deepspeed or torch-pipelining, or "
                "leave out --micro-batches"
            )

    def require_full_plan(self, what: str) -> None:
        """The same of a plan that there is already, which only another can take the place of."""
        if self.micro_batches is not None:
            raise OptionError(
                f"{what} is for pipelines that are kept full, and the plan is of steps of "
                f"{self.micro_batches} micro-batches; plan anew, with --for"
            )

    def to_document(self) -> dict[str, Any]:
        """The objective and the options that belong to it."""
        return {
            each.name: getattr(self, each.name)
            for each in map(self.__dataclass_fields__.__getitem__, ("objective", *self.row.options))
            if each.name not in ADDED or getattr(self, each.name) != each.default
        }


def chosen_options(own: Mapping[str, Any], given: Mapping[str, Any]) -> Options:
    """The options a person has `given` (None: not given) over those of the source itself.

    What a source brings for another objective than the one chosen is left out; what a person
    gives must belong to the objective (OptionError).
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    objective = wanted.get("objective", own.get("objective", "latency"))
    check_objective(objective)
    options = OBJECTIVES[objective].options
    fitting = {name: own[name] for name in own if name in options}
    for name in wanted:
        if name not in Options.__dataclass_fields__:
            known = ", ".join(_written(each) for each in options)
            raise OptionError(f"no option '{name}'; objective {objective} has {known}")
        if name != "objective" and name not in options:
            raise OptionError(_misplaced(name, objective))
    return Options(**{**fitting, **wanted, "objective": objective})


def check_seed(seed: int) -> int:
    """`seed` as a number that a file can hold; OptionError for one that no generator takes."""
    try:
        number = index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise OptionError(f"seed is {seed!r}; give a whole number from 0")
    return number


_SHORT = Repr()
_SHORT.maxother = _SHORT.maxstring = 80  # characters


def check_kind(given: Any, kind: type | tuple[type, ...], name: str, wanted: str) -> None:
    """OptionError unless it is a `kind`; `wanted` says what that is."""
    if not isinstance(given, kind):
        raise OptionError(f"{name} is {_SHORT.repr(given)}; give {wanted}")


def check_called(**given: Any) -> None:
    """OptionError unless each is a function, or None."""
    for name, each in given.items():
        if each is not None and not callable(each):
            raise OptionError(f"{name} is {_SHORT.repr(each)}; give a function, or None")


def check_training(given: Any) -> None:
    """OptionError unless it is a truth value: text such as 'no' would count as true."""
    check_kind(given, bool, "training", "True or False")


def check_mapping(given: Any, name: str, example: str) -> None:
    """OptionError unless it is a mapping, or None; `example` shows one."""
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(f"{name} is {given!r}; give a mapping, as {example}")


def check_seconds(limit: Any, name: str = "the time limit") -> float:
    """A time limit; OptionError for one that is none."""
    if not isinstance(limit, Real) or not float(limit) >= 0:
        raise OptionError(f"{name} is {limit!r}; give seconds of 0 or more")
    return float(limit)


def check_objective(name: str) -> None:
    """OptionError unless `name` is an objective."""
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise OptionError(f"no objective '{name}'; there are {', '.join(OBJECTIVES)}")


def _misplaced(name: str, objective: str) -> str:
    owners = [owner for owner, row in OBJECTIVES.items() if name in row.options]
    return (
        f"option {_written(name)} belongs to objective {' and '.join(owners)}, not to "
        f"{objective}; leave it out or choose another objective"
    )


def _written(name: str) -> str:
    return name.replace("_", "-")
