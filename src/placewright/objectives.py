"""The visible table of objectives: a row says what is minimised and which code belongs to it.

The options of a problem and the format of a plan are read off it too, so it stands below them all
and names code as ``module:name`` inside `placewright`, which is imported when it is first asked
for. A new objective has a row here, its options in `options`, its outcome in `outcome`, and a file
of its own in each package that the row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ObjectiveEntry:
    """A row of the table."""

    name: str
    summary: str
    source: str
    """Paper and section of the definition."""
    options: tuple[str, ...]
    """The options of a problem that mean something for it; the others keep their defaults."""
    outcome: str
    """The class of what a placement comes to."""
    outcome_key: str
    """Its field in a plan file."""
    evaluate: str
    """``(problem, placement) -> outcome``."""
    verify: str
    """``(plan, outcome) -> Report``."""
    bound: str
    """``(problem) -> Bound``: the best that takes no search."""
    planners: str
    """The rows of the table of planners."""
    members: str
    """The members of the portfolio beside the quick planners, in the order they are asked."""
    report: str
    """The module that words and tabulates its plans: `value_words`, `counts`, `device_columns`."""
    page: str
    """The module of what an HTML report shows of its plans: `drawing`."""
    check: str = ""
    """``(problem) -> None``: raises InfeasibleError where no plan can exist, if that is known."""
    placement_fields: tuple[str, ...] = ()
    """What a placement may say beside each op's device."""
    is_rate: bool = False
    """About many inputs, so that people ask for throughput."""
    by_input: bool = False
    """Whether an op has a device for each input of a batch."""

    @property
    def has_sequence(self) -> bool:
        """Whether a placement may say the order of ops and transfers."""
        return "sequence" in self.placement_fields


LATENCY = ObjectiveEntry(
    "latency",
    "the makespan of one inference or training step",
    "Moirai §III-D; DiviML §IV-A",
    options=("transfer_unit", "contention", "memory"),
    outcome="outcome:Schedule",
    outcome_key="schedule",
    evaluate="simulate.latency:time_placement",
    verify="verify.latency:verify_latency",
    bound="bounds.latency.best:lower_bound",
    planners="planners.table.latency:LATENCY",
    members="portfolio.members.latency:LATENCY",
    report="report.latency",
    page="report.html.latency",
    placement_fields=("sequence",),
)

THROUGHPUT = ObjectiveEntry(
    "throughput",
    "the largest load of a device, per input, in a pipeline",
    "Tarnawski et al. 2020 §5",
    options=(
        "load",
        "contiguous",
        "schedule",
        "replicate",
        "shares",
        "micro_batches",
        "data_parallel",
    ),
    outcome="outcome:Loads",
    outcome_key="loads",
    evaluate="simulate.throughput:loads",
    verify="verify.throughput:verify_throughput",
    bound="bounds.throughput:lower_bound",
    planners="planners.table.throughput:THROUGHPUT",
    members="portfolio.members.throughput:THROUGHPUT",
    report="report.throughput",
    page="report.html.throughput",
    check="analysis.ties:check_fits",
    placement_fields=("replicas", "row"),
    is_rate=True,
)

INVOCATION = ObjectiveEntry(
    "invocation-latency",
    "the latency where accelerators are invoked for contiguous subgraphs",
    "Tarnawski et al. 2020 §4",
    options=("subgraphs",),
    outcome="outcome:Invocations",
    outcome_key="invocations",
    evaluate="simulate.invocation:invoke",
    verify="verify.invocation:verify_invocation",
    bound="bounds.invocation.best:lower_bound",
    planners="planners.table.invocation:INVOCATION",
    members="portfolio.members.invocation:INVOCATION",
    report="report.invocation",
    page="report.html.invocation",
    placement_fields=("subgraph",),
)

BATCH = ObjectiveEntry(
    "batch-throughput",
    "the time in which all inputs of a batch are done",
    "DiviML §IV-A",
    options=("transfer_unit", "contention", "batch"),
    outcome="outcome:BatchSchedule",
    outcome_key="batches",
    evaluate="simulate.batch:run_batches",
    verify="verify.batch:verify_batch",
    bound="bounds.batch:lower_bound",
    planners="planners.table.batch:BATCH",
    members="portfolio.members.batch:BATCH",
    report="report.batch",
    page="report.html.batch",
    is_rate=True,
    by_input=True,
)

OBJECTIVES: Mapping[str, ObjectiveEntry] = {
    each.name: each for each in (LATENCY, THROUGHPUT, INVOCATION, BATCH)
}
