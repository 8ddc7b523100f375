"""Who takes part for objective ``batch-throughput``."""

from __future__ import annotations

from placewright.portfolio.members.member import STEPS, Member

BATCH = (
    Member("diviml-milp", "decide"),
    Member("diviml-milp", "decide", {"solver": "cp-sat"}),  # under contention too
    Member("multilevel", "search", {}, STEPS),
    Member("annealing", "search", {}, STEPS),
    Member("milp-split", "prove", share=0.4),
    # For all the rest, from a start of its own: many rounds lead elsewhere than a turn's few.
    Member("multilevel", "prove", afresh=True),
)
