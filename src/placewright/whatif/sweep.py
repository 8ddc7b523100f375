"""`sweep`: one source planned for many variants of cluster and batch, and which of them pay.

>>> from placewright.costs.clusters import load_cluster
>>> from placewright.whatif.variants import parse_count, variants
>>> lines = sweep("zoo:gpt2", variants([load_cluster("2x3090")], [parse_count("RTX 3090=1,2")]))
>>> [(line.name, line.devices) for line in lines]
[('1 × RTX 3090', 1), ('2 × RTX 3090', 2)]
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from placewright import planners
from placewright.cluster import Cluster
from placewright.coarsen import check_name
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, InputError, OptionError
from placewright.graph import Graph
from placewright.importers import Imported
from placewright.importers.phases import load_phases
from placewright.plan import Plan
from placewright.planning import AUTO, DEFAULT_COSTS, imported, make_problem
from placewright.planning import plan as make_plan
from placewright.problem import LONG_ROUNDING, Problem
from placewright.serving.mix import Mix
from placewright.serving.planning import (
    check_options,
    judged,
    make_request,
    with_its_batch,
)
from placewright.serving.request import Request
from placewright.solving import INTERRUPTED, in_common
from placewright.system.interrupts import noticed_interrupts
from placewright.whatif.neighbours import carried_over, neighbours
from placewright.whatif.sweep_lines import SweepLine, with_certainty, with_front
from placewright.whatif.variants import Variant, same_kind

if TYPE_CHECKING:
    from pathlib import Path

    from placewright.budget import Progress

AUTO_SECONDS = 2.0  # of planner auto for a variant: a sweep is to be looked at, then repeated


def own_cluster(imported: Imported) -> Cluster:
    """The cluster that a published workload brings; InputError for a source without one."""
    if imported.cluster is None:
        raise InputError(
            f"{imported.source} has no devices of its own; name clusters (--cluster, --clusters), "
            "such as 2x3090, this-machine or a file"
        )
    return imported.cluster


def sweep(
    source: str | Path | Graph | Imported,
    variants: Sequence[Variant],
    *,
    planner: str = AUTO,
    objective: str | None = None,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    planner_options: Mapping[str, str] | None = None,
    coarsening: str = "none",
    prices: Mapping[str, float] | None = None,
    mix: Mix | None = None,
    time_limit: float = float("inf"),
    seed: int = 0,
    on_progress: Progress | None = None,
    **options: Any,
) -> list[SweepLine]:
    """Plan `source` for each of the `variants`, as `plan` does; a line each, in their order.

    `prices`: kind of device → USD per hour; every kind then needs one. With a `mix` prefill and
    decode of `source` (its text) are planned together, as `serving.planning.plan_request` does.

    The time limit is for each variant (`AUTO_SECONDS` for planner ``auto`` if there is none). What
    cannot be used (an option, a pin, a cluster without routes) raises before anything is planned; a
    variant for which no plan is found is a line with the reason. Ctrl-C ends the sweep: the
    variants left are lines too, unless there is no plan yet.

    A variant starts from the plans of its neighbours (see `neighbours`), and what is found later
    goes back: so none is worse than a neighbour's plan would be in its place.
    """
    prices = prices or {}
    check_prices([variant.cluster for variant in variants], prices)
    check_name(coarsening)
    given = {**options, "objective": objective}
    if mix is None:
        asked = _runs(source, training, variants, given, costs, pinned, coarsening)
    else:
        asked = _requests(source, training, mix, variants, given, costs, pinned)
    for each in asked[:1]:
        _check_planner(planner, planner_options, each.problem.options.objective)

    unlimited = planner == AUTO and math.isinf(time_limit)
    search = {
        "planner": planner,
        "planner_options": planner_options,
        "coarsening": coarsening,
        "time_limit": AUTO_SECONDS if unlimited else time_limit,
        "seed": seed,
    }
    lines = [
        SweepLine(
            variant.name,
            variant.cluster.device_count,
            price_of(variant.cluster, prices) if prices else None,
            None,
        )
        for variant in variants
    ]
    return _Sweeping(variants, asked, lines, search, on_progress).run()


class _Sweeping:
    """Plans variant after variant; what one has found, its neighbours start from."""

    def __init__(
        self,
        variants: Sequence[Variant],
        asked: Sequence[_Asked],
        lines: list[SweepLine],
        search: Mapping[str, Any],
        on_progress: Progress | None,
    ) -> None:
        self.asked = asked
        self.lines = lines
        self.search = search
        self.on_progress = on_progress
        self.beside = neighbours(variants)

    def run(self) -> list[SweepLine]:
        with noticed_interrupts() as interrupts:
            for number in range(len(self.lines)):
                if interrupts.came:
                    self._fail(number, INTERRUPTED)
                    continue
                try:
                    self._plan(number)
                except (InfeasibleError, OptionError) as error:
                    self._fail(number, str(error))
                except KeyboardInterrupt:
                    if not any(line.plan for line in self.lines):
                        raise
                    interrupts.came = True
                    self._fail(number, INTERRUPTED)
            if not interrupts.came:
                with contextlib.suppress(KeyboardInterrupt):  # what is found already holds
                    self._give_back()
        return with_certainty(with_front(self.lines))

    def _fail(self, number: int, error: str) -> None:
        """No plan for the reason given; a neighbour's plan that holds here is one all the same."""
        line = self.lines[number]
        if error == INTERRUPTED:
            line = replace(line, plan=None, served=None, carried="")
        if line.plan is None:
            self.lines[number] = replace(line, error=error)

    def _plan(self, number: int) -> None:
        """Plan a variant, from the best of its neighbours' plans so far."""
        for other in self.beside[number]:
            self._carry(other, number)
        line, asked = self.lines[number], self.asked[number]
        found = make_plan(
            asked.problem,
            warm_start=line.plan,
            on_progress=_within(self.on_progress, line.name, number, len(self.lines)),
            **self.search,
        )
        self._keep(number, asked.answered(replace(line, carried=""), found), own=True)

    def _carry(self, source: int, target: int) -> bool:
        """Whether a plan of one variant is better than what another has; then that takes it."""
        theirs, mine = self.lines[source], self.lines[target]
        if theirs.plan is None:
            return False
        most = None if mine.served or mine.plan is None else mine.plan.value
        found = carried_over(theirs.plan, self.asked[target].problem, most)
        if found is None:
            return False
        name = theirs.carried or theirs.name
        answered = self.asked[target].answered(replace(mine, carried=name, error=""), found)
        return self._keep(target, answered)

    def _keep(self, number: int, line: SweepLine, *, own: bool = False) -> bool:
        """Take the line if it is better than what there is, its `own` plan if it is as good.

        The better bound is taken in any case.
        """
        before = self.lines[number]
        margin = LONG_ROUNDING * abs(line.score)
        better = line.score > before.score + margin
        if better or (own and line.score >= before.score - margin):
            self.lines[number] = self._bounded(line, before)
        else:
            self.lines[number] = self._bounded(before, line)
        return better

    def _bounded(self, line: SweepLine, other: SweepLine) -> SweepLine:
        """The line with the bound of `other`, which is of the same problem, if that is better."""
        assert line.plan is not None
        if other.plan is None or other.plan.lower_bound <= line.plan.lower_bound:
            return line
        bound = min(other.plan.lower_bound, line.plan.value)
        plan = replace(line.plan, lower_bound=bound, bound_source=other.plan.bound_source)
        served = line.served
        if served is not None:
            least = min(bound, served.value)
            served = replace(served, plan=plan, lower_bound=least, bound_source=plan.bound_source)
        return replace(line, plan=plan, served=served)

    def _give_back(self) -> None:
        """Carry plans to and fro until no neighbour gains: the last variants' first."""
        waiting = list(range(len(self.lines)))
        while waiting:
            source = waiting.pop()
            for target in self.beside[source]:
                if self._carry(source, target) and target not in waiting:
                    waiting.append(target)


def require_plan(lines: Sequence[SweepLine]) -> None:
    """InfeasibleError with the reasons if no variant has a plan."""
    if not any(line.plan for line in lines):
        reasons = in_common({line.name: line.error for line in lines})
        raise InfeasibleError(f"no variant has a plan: {reasons}")


# -- prices ----------------------------------------------------------------------------------


def price_of(cluster: Cluster, prices: Mapping[str, float]) -> float:
    """USD per hour of all devices of `cluster`."""
    return sum(_price(device.kind, prices) or 0.0 for device in cluster.devices)


def check_prices(clusters: Sequence[Cluster], prices: Mapping[str, float]) -> None:
    """OptionError for a price of no device, or a device without one where others have."""
    kinds = list(dict.fromkeys(each.kind for cluster in clusters for each in cluster.devices))
    for kind in prices:
        if not any(same_kind(kind, each) for each in kinds):
            raise OptionError(
                f"there is a price for '{kind}', but no device of that kind (kinds: "
                f"{', '.join(kinds)})"
            )
    for one, other in combinations(prices, 2):
        if same_kind(one, other):
            raise OptionError(f"'{one}' and '{other}' are one kind of device; give one price")
    unpriced = [kind for kind in kinds if prices and _price(kind, prices) is None]
    if unpriced:
        raise OptionError(
            f"devices of kind '{unpriced[0]}' have no price; add --price '{unpriced[0]}=USD' "
            "(0 where it is free)"
        )


def _price(kind: str, prices: Mapping[str, float]) -> float | None:
    return next((price for name, price in prices.items() if same_kind(name, kind)), None)


# -- steps -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """What a variant asks of the planner; of a mix, the request behind the problem."""

    problem: Problem
    source: str
    request: Request | None = None

    def answered(self, line: SweepLine, plan: Plan) -> SweepLine:
        plan = replace(plan, source=self.source)
        if self.request is None:
            return replace(line, plan=plan)
        served = judged(self.request, plan)
        return replace(line, plan=served.plan, served=served)


def _runs(
    source: str | Path | Graph | Imported,
    training: bool,
    variants: Sequence[Variant],
    given: Mapping[str, Any],
    costs: CostOptions,
    pinned: Mapping[str, str] | None,
    coarsening: str,
) -> list[_Asked]:
    """One run of the model, for each variant."""
    model = imported(source, training=training)
    asked = []
    for variant in variants:
        chosen = {**given, **variant.options}
        problem, _ = make_problem(
            model, variant.cluster, chosen, costs=costs, pinned=pinned, coarsening=coarsening
        )
        asked.append(_Asked(problem, model.source))
    return asked


def _requests(
    source: str | Path | Graph | Imported,
    training: bool,
    mix: Mix,
    variants: Sequence[Variant],
    given: Mapping[str, Any],
    costs: CostOptions,
    pinned: Mapping[str, str] | None,
) -> list[_Asked]:
    """A request of the mix, for each variant."""
    if training:
        raise OptionError("--mix is for inference; leave out --training")
    if not isinstance(source, str):
        raise OptionError("a mix is planned from a source's text, such as zoo:llama-7b")
    options = [{**given, **variant.options} for variant in variants]
    for each in options:
        check_options(each)
    source = with_its_batch(source, mix)
    phases = load_phases(source, mix.prompt, mix.output)
    requests = [
        make_request(phases, variant.cluster, mix, each, costs=costs, pinned=pinned)
        for variant, each in zip(variants, options, strict=True)
    ]
    return [_Asked(each.problem, f"{source} --mix {mix}", each) for each in requests]


def _check_planner(planner: str, options: Mapping[str, str] | None, objective: str) -> None:
    """A planner that does not exist is no reason of a variant."""
    planners.create(planner, options, objective)


def _within(report: Progress | None, name: str, number: int, count: int) -> Progress | None:
    """Progress of one variant as progress of the sweep."""
    if report is None:
        return None
    return lambda what, done: report(f"{name}: {what}", (number + min(done, 1.0)) / count)
