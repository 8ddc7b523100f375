"""Who takes part for objective ``throughput``."""

from __future__ import annotations

from placewright.portfolio.members.member import Member

THROUGHPUT = (
    Member("exhaustive", "decide"),
    # Of devices that differ, stages over all of them mostly lose to the whole model on each.
    Member("data-parallel", "construct", effort={}, where={"shares": "unequal"}),
    Member("annealing", "search", {}, {"steps": "20000"}, most_ops=5_000),
    Member("block-moves", "search", {}, {"steps": "20000"}),
    # Asked once and beside the searches, before the next has all cores: on devices that differ
    # these find more, on equal ones that does.
    Member("annealing", "prove", share=0.35, afresh=True, most_ops=5_000),
    Member("max-load-ip", "prove", {}, {"steps": "100000"}, share=0.7, alone=True),
)
