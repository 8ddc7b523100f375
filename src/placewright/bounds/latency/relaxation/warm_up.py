"""Every kernel behind these bounds once, so that it is compiled and kept."""

from __future__ import annotations

import numpy as np

from placewright.bounds.latency.relaxation.fan_out import (
    bound_by_arrivals,
    bound_by_copies,
    fan_out_of,
)
from placewright.bounds.latency.relaxation.lagrangian import Chain, Pricing, mixed
from placewright.bounds.latency.relaxation.network import network_of
from placewright.bounds.latency.relaxation.paths import settle
from placewright.bounds.latency.relaxation.regions import Regions
from placewright.budget import Budget
from placewright.problem import Problem


def warm_up_bounds(problem: Problem) -> None:
    """Bound a small problem by all means but search; its time is what compiling takes.

    The problem needs an op whose tensor is sent once to several readers for all kernels to run,
    as every transformer has.
    """
    network = network_of(problem)
    regions = Regions.of(network)
    regions.rule_out(np.inf)
    chain = Chain(network, regions, settle(network, regions, Budget(), 64.0).steps())
    Pricing(chain, chain.durations(), {}).value(mixed(network))
    for region in range(len(regions.first)):
        ops = regions.ops(region)
        fan_out = fan_out_of(network, ops, regions.part(ops))
        if fan_out is not None:
            known = bound_by_copies(fan_out, network, 0, -1, 0.0, Budget())
            bound_by_arrivals(fan_out, network, 0, -1, known, Budget())
            return
