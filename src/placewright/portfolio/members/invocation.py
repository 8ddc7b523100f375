"""Who takes part for objective ``invocation-latency``."""

from __future__ import annotations

from placewright.portfolio.members.member import STEPS, Member

INVOCATION = (
    Member("invocation-ip", "decide", {"cuts": "0"}),
    Member("annealing", "search", {}, STEPS),
    # The best plan has deep valleys around it: hotter out of them, or from somewhere else.
    Member("annealing", "search", {"temperature": "0.03"}, STEPS),
    Member("annealing", "search", {}, STEPS, afresh=True, most_ops=3_000),
    # Where it takes the problem it mostly decides it, in a second or two.
    Member(
        "ideal-dp",
        "prove",
        {},
        {"ideals": "10000"},
        share=0.5,
        most_ops=5_000,
        where={"subgraphs": 1},
    ),
    Member("path", "prove", share=0.4, prover="invocation.path:prove"),
    Member("invocation-ip", "prove", {"cuts": "0"}, share=0.45, most_ops=500),
    # Asked once and for all the rest: what cools slowly finds what no turn is long enough for.
    Member("annealing", "prove"),
)
