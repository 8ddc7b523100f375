"""Who takes part for objective ``batch-throughput``."""

from __future__ import annotations

from placewright.portfolio.members.member import STEPS, Member

BATCH = (
    Member("diviml-milp", "decide"),
    Member("diviml-milp", "decide", {"solver": "cp-sat"}),  # under contention too
    Member("annealing", "search", {}, STEPS),
    Member("milp-split", "prove", share=0.4),
    # For all the rest: what cools slowly finds what no turn is long enough for.
    Member("annealing", "prove"),
)
