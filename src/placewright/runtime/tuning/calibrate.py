"""Calibration: what a run of a plan measured becomes what the next plan expects.

Times of ops go to the store of profiles, as entries of method ``run``: an op in the plan's own
context, beside the other ranks, is what a plan is about, so they take the place of what was
measured otherwise. Calls of one signature on equal devices are one entry, their median. A run has
few samples of a call, and what something else disturbed would drive the op off its device for
good: so a time of very few samples that is far from the one measured before is set aside.

Links do not go to the store, which knows none: they are part of the report, and
`link_correction.corrected` puts them into a cluster.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from placewright.cluster import CpuRun, Device
from placewright.coarsen.recompute import called_ops
from placewright.costs.profiles.entry import NORMAL_95, Measured, ProfileKey
from placewright.costs.profiles.lookup import identity, library_of
from placewright.costs.profiles.profiling import NOISY, measured_ones, summary
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import InputError, OptionError
from placewright.graph import Graph
from placewright.importers import load
from placewright.importers.costs import Cost
from placewright.plan import Plan
from placewright.problem import COST_SPREADS, MEASURED
from placewright.runtime.results import RunReport
from placewright.runtime.tuning.comparison import OpTimes, RunComparison, compare_run, rank_devices
from placewright.runtime.tuning.link_correction import LinkCorrection, link_corrections

FEW = 3  # samples; of fewer the median may be one that was disturbed
FAR = 4.0  # times as long, or as short, as measured before


@dataclass(frozen=True)
class CalibrationReport:
    """What a calibration did.

    `kept` entries are in the store, of so many `samples`, `new` of them for calls it had no entry
    of; `set_aside` names ops whose few samples were too far from what was measured before.
    `planned` and `measured` are seconds of all ops of the run, and `error` is the median of
    |planned / measured - 1| over them. `noise` is how far the clocked calls lie apart in the
    seconds of their ops, as a share of the median; None where there was one. `links` are the links
    as the run saw them, and `left_out` says of a device why nothing is kept of it.
    """

    kept: int
    new: int
    samples: int
    set_aside: tuple[str, ...]
    planned: float
    measured: float
    error: float
    noise: float | None
    links: tuple[LinkCorrection, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_noisy(self) -> bool:
        return self.noise is not None and self.noise > NOISY


def calibrate(
    plan: Plan, report: RunReport, store: ProfileStore, *, graph: Graph | None = None
) -> CalibrationReport:
    """Keep in `store` what `report`, a run of `plan`, measured of its ops; links are reported.

    `graph` is that of the plan's source, which is imported where it is not given. InputError for a
    run without steps, or where the source is another by now; OptionError where no device was run
    as the cluster describes it.
    """
    found = compare_run(plan, report)
    identities, left_out = _identities(plan, report)
    if not identities:
        device, why = next(iter(left_out.items()))
        raise OptionError(f"nothing can be kept of the run: device '{device}' {why}")
    calls = _Calls(plan, _graph_of(plan, graph), found, identities)
    kept, set_aside = calls.entries(store)
    new = store.put(kept)
    seen = [(op.planned, op.measured) for op in found.ops if op.measured]
    return CalibrationReport(
        kept=len(kept),
        new=new,
        samples=sum(each.samples for each in kept.values()),
        set_aside=set_aside,
        planned=sum(planned for planned, _ in seen),
        measured=sum(measured for _, measured in seen),
        error=statistics.median([abs(p / m - 1) for p, m in seen]) if seen else 0.0,
        noise=_noise(report),
        links=link_corrections(plan, chain.from_iterable(found.messages)),
        left_out=left_out,
    )


def _noise(report: RunReport) -> float | None:
    totals = [
        sum(step.finish - step.start for step in steps if step.kind == "op")
        for steps in report.passes
    ]
    middle = statistics.median(totals)
    return (max(totals) - min(totals)) / middle if len(totals) > 1 and middle else None


def _identities(plan: Plan, report: RunReport) -> tuple[dict[int, str], dict[str, str]]:
    """By device its name in the store; and by name why a device of the run has none."""
    problem = plan.problem
    found: dict[int, str] = {}
    left_out: dict[str, str] = {}
    for rank, device in enumerate(rank_devices(plan, report)):
        run, name = problem.device_run(device), problem.device_names[device]
        named = identity(Device(name, problem.device_kinds[device], run=run))
        if run is None or named is None:
            left_out[name] = (
                "does not say what it is on this machine; plan on a cluster whose devices have "
                "run:, such as that of 'cluster detect --split-cpu 2'"
            )
        elif isinstance(run, CpuRun) and (why := _elsewhere(run, report, rank)):
            left_out[name] = why
        else:
            found[device] = named
    return found, left_out


def _elsewhere(run: CpuRun, report: RunReport, rank: int) -> str:
    """Why a rank was not what its device is; empty where it was, or nobody says."""
    threads = report.rank_threads[rank] if report.rank_threads else None
    if threads is None:
        return ""
    if threads != len(run.cores):
        return (
            f"ran with {threads} threads instead of the {len(run.cores)} of its cores; "
            "run it without --threads"
        )
    if not report.rank_cores or report.rank_cores[rank] != run.cores:
        return "was not kept to its cores; run each rank as a process of its own"
    return ""


def _graph_of(plan: Plan, graph: Graph | None) -> Graph:
    problem = plan.problem
    if graph is None:
        graph = load(plan.source, training=bool(problem.is_backward.any())).graph
    missing = next((name for name in called_ops(problem) if name not in graph.op_index), None)
    if missing is not None:
        raise InputError(
            f"{plan.source or graph.name} has no op '{missing}' any more; plan it again"
        )
    if not any(graph.op_signatures):
        raise InputError(
            f"{plan.source or graph.name} does not say which calls its ops are, so that nothing "
            "can be kept of them; run a plan of a torch: source"
        )
    return graph


class _Calls:
    """The measured calls of a run by signature and device."""

    def __init__(
        self, plan: Plan, graph: Graph, found: RunComparison, identities: Mapping[int, str]
    ) -> None:
        self.graph = graph
        self.number = [graph.op_index[name] for name in called_ops(plan.problem)]
        self.before = _moved_before(plan, graph, self.number)
        self.ops: dict[ProfileKey, list[OpTimes]] = defaultdict(list)
        for op in found.ops:
            signature = graph.op_signatures[self.number[op.op]]
            if op.samples and signature and op.device in identities:
                key = ProfileKey(signature, identities[op.device], library_of(graph))
                self.ops[key].append(op)

    def entries(self, store: ProfileStore) -> tuple[dict[ProfileKey, Measured], tuple[str, ...]]:
        """What to keep, and the names of the ops that are set aside."""
        known = measured_ones(store, self.ops)
        kept: dict[ProfileKey, Measured] = {}
        set_aside: list[str] = []
        for key, ops in self.ops.items():
            samples = [seconds for op in ops for seconds in op.samples]
            old = known.get(key)
            if old is not None and len(samples) < FEW and _is_far(samples, old):
                set_aside += [self.graph.op_names[self.number[op.op]] for op in ops]
            else:
                kept[key] = self._entry(ops, samples, old)
        return kept, tuple(set_aside)

    def _entry(
        self, ops: Sequence[OpTimes], samples: Sequence[float], old: Measured | None
    ) -> Measured:
        graph, number = self.graph, self.number[ops[0].op]
        work = Cost(
            float(graph.op_flops[number]),
            float(graph.op_bytes_read[number]),
            float(graph.op_bytes_written[number]),
            graph.op_dtypes[number],
        )
        before = statistics.median(self.before[op.op] for op in ops)
        memory = 0.0 if old is None else old.memory
        many = old is not None and old.method != "run"  # samples, of which the range is known
        spread = old.spread if old is not None and many else COST_SPREADS[MEASURED]
        return _widened(summary(samples, "run", work, before, memory), spread)


def _is_far(samples: Sequence[float], old: Measured) -> bool:
    now = statistics.median(samples)
    return now > FAR * old.seconds or now * FAR < old.seconds


def _widened(entry: Measured, spread: float) -> Measured:
    """With a range at least as wide as a `spread` says: few samples vary less than many would."""
    factor = math.exp(NORMAL_95 * spread)
    low, high = min(entry.low, entry.seconds / factor), max(entry.high, entry.seconds * factor)
    return replace(entry, low=low, high=high)


def _moved_before(plan: Plan, graph: Graph, number: Sequence[int]) -> list[float]:
    """`[op]` the bytes that the op before it on its device reads and writes."""
    moved = graph.op_bytes_read + graph.op_bytes_written
    before = [0.0] * plan.problem.op_count
    last: dict[int, float] = {}
    device = plan.placement.device.tolist()
    for op in plan.schedule.op_start.argsort(kind="stable").tolist():
        before[op] = last.get(device[op], 0.0)
        last[device[op]] = float(moved[number[op]])
    return before
