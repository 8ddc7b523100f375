"""Standard Evaluation (Celeritas §4.2): what the ops of a large batch take, from smaller ones.

First the program runs at several small batches, each on one device as a whole, and a line is fitted
to every op's seconds and bytes: entries of the large batch that are `regressed`. Then the large
batch itself runs a few steps, placed sequentially: the ops in order, on one device until its memory
is full, then on the next (`order-place`). What is measured there goes before what was regressed; an
op stays regressed on the kinds of device that it was not placed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placewright.budget import Progress, no_progress
from placewright.cluster import Cluster, CpuRun, Device
from placewright.costs.machine import available_memory
from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.costs.profiles.lookup import identity
from placewright.costs.profiles.measure import bytes_in_context, measure_in_context
from placewright.costs.profiles.memory import measure_memory
from placewright.costs.profiles.profiling import (
    CONTEXT_SHARE,
    at_hand,
    keep_facts,
    measured_ones,
    summary,
    usable_memory,
)
from placewright.costs.profiles.program import Heard, Samples
from placewright.costs.profiles.regression import regressed
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.profiles.torch_program import TorchProgram
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError
from placewright.importers import Imported
from placewright.importers.costs import Cost
from placewright.importers.torch.signature import signature
from placewright.planning import make_problem, plan_problem
from placewright.system.pinning import move_to, pinned
from placewright.units import format_bytes
from placewright.whatif.changes import without_devices

if TYPE_CHECKING:
    from placewright.importers.torch.once import Source
    from placewright.importers.torch.programs import Executable


STEPS = 5  # of the large batch
SMALL = 3  # small batches where none are named
LEAST_SMALL = 2  # batches a line needs
SEQUENTIAL = "order-place"


@dataclass(frozen=True)
class Evaluation:
    """What the Standard Evaluation did on devices that are the same.

    Of the distinct ops at the large `batch`, `known` were measured before it ran (some by the small
    ones, where their shapes have no batch), `corrected` are measured by its steps, and `regressed`
    rest on the small `batches`. `estimates` is what regression alone said of the last two, by
    signature. `left_out` says why the large batch was not run, if it should have been. `held_out`
    are the seconds of steps that nothing was learnt from, by the names of the large batch's ops.
    """

    devices: tuple[str, ...]
    identity: str
    library: str
    batches: tuple[int, ...]
    batch: int
    known: int
    regressed: int
    corrected: int
    seconds: float
    left_out: str = ""
    estimates: Mapping[str, Measured] = field(default_factory=dict, repr=False)
    held_out: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False)


def standard_evaluation(
    source: str,
    cluster: Cluster,
    store: ProfileStore,
    *,
    batches: Sequence[int] = (),
    steps: int = STEPS,
    devices: Sequence[str] = (),
    training: bool = False,
    on_progress: Progress | None = None,
    hold_out: bool = False,
) -> list[Evaluation]:
    """Costs of `source`, whose batch is the large one, on `devices` of `cluster` (all at hand).

    Small are `batches`; where none are given, the three largest halvings of the large one that
    fit each device. The large batch runs so many `steps` after two that do not count; with 0 all
    stays regressed, as it does where its memory is not there. What is measured is kept at once.
    To `hold_out`, as many steps again run in turns with these, for the estimates to be judged by:
    before them or after, the machine may have another speed.

    OptionError for a source or for batches that this cannot be done with, ClusterError for a device
    that is not this machine's, ExecutionError for a call that fails.
    """
    from placewright.importers.torch.once import Source
    from placewright.importers.torch.programs import batch_of

    report = on_progress or no_progress
    started = time.perf_counter()
    batch = batch_of(source)
    _check(source, batch, batches, steps)
    groups = at_hand(cluster, devices)
    exported = Source(source, training=training)
    large = exported.executable
    works = [_Work(group, large, store) for group in groups]
    new = [work for work in works if work.nodes]
    correction = Correction()
    if new:
        usable = min(usable_memory(device) for work in new for device in work.devices)
        small = _small_batches(source, batch, large, batches, training, usable)
        for done, (each, executable) in enumerate(small):
            for work in new:
                work.measure(each, executable, _telling(report, work.devices[0], each, done))
        for work in new:
            work.regress(batch)
        if steps:
            correction = _correct(works, exported, steps, cluster, report, hold_out=hold_out)
    seconds = time.perf_counter() - started
    return [work.result(batch, seconds, correction) for work in works]


def _check(source: str, batch: int, batches: Sequence[int], steps: int) -> None:
    if steps < 0:
        raise OptionError(f"--steps is {steps}; give 0 or more steps of the large batch")
    if batch <= LEAST_SMALL:
        raise OptionError(
            f"{source} has a batch of {batch}, and there are no {LEAST_SMALL} smaller ones; give "
            "the large batch that is to be planned, as in hf:CONFIG?batch=32"
        )
    if batches and (
        len(set(batches)) < LEAST_SMALL or not 1 <= min(batches) <= max(batches) < batch
    ):
        raise OptionError(
            f"--batches is {','.join(map(str, batches))}; give {LEAST_SMALL} or more, from 1 and "
            f"below that of {source}, which is {batch}"
        )


def _small_batches(
    source: str, batch: int, large: Executable, wanted: Sequence[int], training: bool, usable: float
) -> Iterator[tuple[int, Executable]]:
    """The small batches and their programs: those `wanted`, else those that will do."""
    from placewright.importers.torch.programs import load_executable

    halvings = [batch >> times for times in range(1, batch.bit_length())]
    found = 0
    for each in sorted(set(wanted)) or halvings:
        executable = load_executable(source, training=training, batch=each)
        if fault := _fault(executable, large, usable):
            if wanted:
                raise OptionError(fault)
            continue
        yield each, executable
        found += 1
        if found == SMALL and not wanted:
            return
    if found < LEAST_SMALL:
        raise OptionError(
            f"{source} makes the same calls and fits a device ({format_bytes(usable)} may be used) "
            f"at {found} halvings of its batch; give {LEAST_SMALL} or more --batches, or profile "
            "it with --method isolated"
        )


def _fault(small: Executable, large: Executable, usable: float) -> str:
    """Why nothing can be learnt of `large` from `small`; empty if it can."""
    from placewright.importers.torch.programs import first_difference

    if difference := first_difference(small, large):
        return (
            f"{small.name} is another program than at its own batch: they differ at "
            f"'{difference}'; give other --batches"
        )
    needed = bytes_in_context(small)
    if needed > usable:
        return (
            f"{small.name} needs {format_bytes(needed)}, and {format_bytes(usable)} may be used of "
            "a device; give smaller --batches"
        )
    return ""


def _telling(report: Progress, device: Device, batch: int, done: int) -> Heard:
    """Reports the passes at the small batch that comes after so many."""

    def heard(passes: int, share: float, samples: Callable[[], Samples]) -> None:
        report(f"{device.name}: batch {batch}, pass {passes}", (done + share) / (SMALL + 1))

    return heard


@dataclass(frozen=True)
class Correction:
    """What `Evaluation` says of the steps of the large batch."""

    left_out: str = ""
    held_out: Mapping[str, Sequence[float]] = field(default_factory=dict)


# -- one kind of device ------------------------------------------------------------------------


class _Work:
    """The devices of one identity, and what is not yet measured there of the large batch."""

    def __init__(self, devices: Sequence[Device], large: Executable, store: ProfileStore) -> None:
        self.devices, self.large, self.store = devices, large, store
        self.program = TorchProgram(large)
        self.identity, self.library = str(identity(devices[0])), self.program.library
        nodes: dict[str, list[str]] = {}
        for node in large.calls:
            nodes.setdefault(signature(node), []).append(node.name)
        known = {key.signature for key in measured_ones(store, map(self._key, nodes))}
        self.known = len(known)
        self.nodes = {text: names for text, names in nodes.items() if text not in known}
        keep_facts(self.program, devices[0], store)
        self.points: dict[int, dict[str, Measured]] = {}  # of the small batches
        self.bytes: dict[int, dict[str, float]] = {}
        self.estimates: dict[str, Measured] = {}
        self.corrected: set[str] = set()

    def measure(self, batch: int, executable: Executable, heard: Heard) -> None:
        """A small batch as a whole; what is new of its own ops is kept too."""
        run = self.devices[0].run
        assert isinstance(run, CpuRun)
        with pinned(run.cores):
            context = measure_in_context(executable, heard)
            memory = measure_memory(executable)
        self.points[batch] = {
            text: summary([x for name in names for x in context.calls[name]], "context")
            for text, names in self.nodes.items()
        }
        self.bytes[batch] = {
            text: max(memory[name] for name in names) for text, names in self.nodes.items()
        }
        outputs = _outputs(executable)
        own: dict[str, float] = {}
        for node in executable.calls:
            name, text = node.name, signature(node)
            own[text] = max(own.get(text, 0.0), memory[name] - outputs[name])
        known = {key.signature for key in measured_ones(self.store, map(self._key, own))}
        facts = _facts(executable)
        self.store.put(
            {
                self._key(text): summary(samples, "context", *facts(text), own[text])
                for text, samples in context.samples.items()
                if text not in known
            }
        )

    def regress(self, batch: int) -> None:
        """Keep what follows from the small batches; a call that is the same there was measured."""
        same = {key.signature for key in measured_ones(self.store, map(self._key, self.nodes))}
        self.nodes = {text: names for text, names in self.nodes.items() if text not in same}
        self.known += len(same)
        batches, outputs = sorted(self.points), _outputs(self.large)
        for text, names in self.nodes.items():
            self.estimates[text] = regressed(
                batches,
                [self.points[each][text] for each in batches],
                [self.bytes[each][text] for each in batches],
                batch,
                self.program.work(text),
                max(outputs[name] for name in names),
            )
        self.store.put({self._key(text): each for text, each in self.estimates.items()})

    def correct(
        self,
        calls: Mapping[str, Sequence[float]],
        memory: Mapping[str, float],
        placement: Mapping[str, str],
    ) -> None:
        """Keep what was measured of the large batch on these devices."""
        own, outputs = {device.name for device in self.devices}, _outputs(self.large)
        facts, found = _facts(self.large), {}
        for text, names in self.nodes.items():
            here = [name for name in names if placement[name] in own]
            if here:
                beyond = max(max(memory[name] - outputs[name], 0.0) for name in here)
                samples = [x for name in here for x in calls[name]]
                found[self._key(text)] = summary(samples, "context", *facts(text), beyond)
        self.store.put(found)
        self.corrected = {key.signature for key in found}

    def result(self, batch: int, seconds: float, correction: Correction) -> Evaluation:
        return Evaluation(
            tuple(device.name for device in self.devices),
            self.identity,
            self.library,
            tuple(sorted(self.points)),
            batch,
            self.known,
            len(self.nodes) - len(self.corrected),
            len(self.corrected),
            seconds,
            correction.left_out if self.nodes else "",
            self.estimates,
            correction.held_out,
        )

    def _key(self, text: str) -> ProfileKey:
        return ProfileKey(text, self.identity, self.library)


def _outputs(executable: Executable) -> dict[str, float]:
    """Bytes that each call makes, by the name of its node."""
    from placewright.importers.torch.costs import is_view, size_of

    return {
        node.name: 0.0 if is_view(node) else size_of(node.meta.get("val"))
        for node in executable.calls
    }


def _facts(executable: Executable) -> Callable[[str], tuple[Cost, float]]:
    """By signature: what a call has to do, and what was moved before it."""
    program = TorchProgram(executable)
    before = program.bytes_before
    return lambda text: (program.work(text), before[text])


# -- the large batch ---------------------------------------------------------------------------


def _correct(
    works: Sequence[_Work],
    exported: Source,
    steps: int,
    cluster: Cluster,
    report: Progress,
    *,
    hold_out: bool,
) -> Correction:
    """Run a few steps of the large batch, placed sequentially; or say why that cannot be done."""
    large = exported.executable
    needed, there = bytes_in_context(large), CONTEXT_SHARE * available_memory()
    if needed > there:
        return Correction(
            f"running it needs {format_bytes(needed)}, and {format_bytes(there)} of this machine "
            "may be used"
        )
    devices = {device.name: device for work in works for device in work.devices}
    costs = CostOptions(profiles=works[0].store.path)
    try:
        placement = _placed_sequentially(exported, cluster, list(devices), costs)
    except InfeasibleError as error:
        return Correction(str(error))
    cores = {name: device.run.cores for name, device in devices.items()
             if isinstance(device.run, CpuRun)}  # fmt: skip

    def heard(passes: int, share: float, samples: Callable[[], Samples]) -> None:
        report(f"large batch: pass {passes}", (SMALL + share) / (SMALL + 1))

    with pinned(sorted({core for each in cores.values() for core in each})):
        move_to(cores[placement[large.calls[-1].name]])  # where every pass ends, and is watched
        context = measure_in_context(
            large,
            heard,
            steps=steps * 2 if hold_out else steps,
            before=_moves(large, placement, cores),
        )
        memory = measure_memory(large)
    turns = 2 if hold_out else 1
    learnt = {name: seconds[::turns] for name, seconds in context.calls.items()}
    for work in works:
        work.correct(learnt, memory, placement)
    if not hold_out:
        return Correction()
    return Correction(held_out={name: each[1::turns] for name, each in context.calls.items()})


def _placed_sequentially(
    exported: Source, cluster: Cluster, devices: Sequence[str], costs: CostOptions
) -> dict[str, str]:
    """The device of every op, by names; InfeasibleError where these lack the memory."""
    options = {"objective": "latency", "memory": "peak"}
    large = Imported(exported.graph, source=exported.name)
    problem, _ = make_problem(large, cluster, options, costs=costs)
    others = [name for name in problem.device_names if name not in devices]
    if others:
        problem = without_devices(problem, others)
    plan = plan_problem(problem, planner=SEQUENTIAL)
    chosen = plan.placement.device.tolist()
    return {
        op: problem.device_names[device]
        for op, device in zip(problem.op_names, chosen, strict=True)
    }


def _moves(
    large: Executable, placement: Mapping[str, str], cores: Mapping[str, Sequence[int]]
) -> dict[str, Callable[[], None]]:
    """Before which calls the process goes to the cores of another device."""
    moves: dict[str, Callable[[], None]] = {}
    current = ""
    for node in large.calls:
        if placement[node.name] != current:
            current = placement[node.name]
            moves[node.name] = _move(cores[current])
    return moves


def _move(cores: Sequence[int]) -> Callable[[], None]:
    def move() -> None:  # programs take functions with a name only
        move_to(cores)

    return move
