"""`sweep` for an engine: what it makes of one source on many clusters, each plan proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from placewright.budget import Progress
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.planning import plan_for
from placewright.exporters.requests import plan_requests_for
from placewright.planning import imported
from placewright.serving.mix import Mix, read_kinds
from placewright.solving import INTERRUPTED
from placewright.system.interrupts import noticed_interrupts
from placewright.whatif.sweep import check_prices, price_of
from placewright.whatif.sweep_lines import SweepLine, with_certainty, with_front
from placewright.whatif.variants import Variant


def sweep_for(
    source: str,
    variants: Sequence[Variant],
    engine: str,
    *,
    mix: Mix | Sequence[Mix] | str | None = None,
    training: bool = False,
    prices: Mapping[str, float] | None = None,
    on_progress: Progress | None = None,
    **asked: Any,
) -> list[SweepLine]:
    """A line per variant, as `whatif.sweep` has them, of plans for an `engine`.

    With a `mix` these are plans for requests. `asked` is what `plan_for` and `plan_requests_for`
    take: costs, pins, a seed and options of the problem. A variant for which there is no plan is a
    line with the reason; Ctrl-C ends the sweep with those that are planned, if any. OptionError
    where an option is refused for every variant.

    >>> lines = sweep_for("zoo:llama-7b", variants, "vllm", mix="prompt=512,output=128,batch=best",
    ...                   prices={"RTX 4090": 0.35})                     # doctest: +SKIP
    >>> [line.price_of_tokens for line in lines]                         # doctest: +SKIP
    [0.21, 0.18]
    """
    prices = prices or {}
    check_prices([variant.cluster for variant in variants], prices)
    kinds = read_kinds(mix) if isinstance(mix, str) else mix
    model = imported(source, training=training) if kinds is None else source
    refusals: list[OptionError] = []

    def line(variant: Variant) -> SweepLine:
        price = price_of(variant.cluster, prices) if prices else None
        bare = SweepLine(variant.name, variant.cluster.device_count, price, None)
        if interrupts.came:
            return replace(bare, error=INTERRUPTED)
        given: dict[str, Any] = {**asked, **variant.options, "free_seconds": 0.0}
        try:
            if kinds is None:
                found = plan_for(model, variant.cluster, engine, training=training, **given)
                return replace(bare, plan=found.plan)
            served = plan_requests_for(source, variant.cluster, engine, kinds, **given).served
            return replace(bare, plan=served.plan, served=served)
        except (InfeasibleError, OptionError) as error:
            if isinstance(error, OptionError):
                refusals.append(error)
            return replace(bare, error=str(error))
        except KeyboardInterrupt:
            interrupts.came = True
            return replace(bare, error=INTERRUPTED)

    lines: list[SweepLine] = []
    with noticed_interrupts() as interrupts:
        for number, variant in enumerate(variants):
            if on_progress is not None:
                on_progress(variant.name, number / len(variants))
            lines.append(line(variant))
    if interrupts.came and not any(each.plan for each in lines):
        raise KeyboardInterrupt
    if refusals and len(refusals) == len(lines):
        raise refusals[0]
    return with_certainty(with_front(lines))
