"""Who takes part for objective ``batch-throughput``."""

from __future__ import annotations

from placewright.portfolio.members.member import FREE, STEPS, Member

TURN = 2.0  # seconds: what cools more quickly finds less
LONG = 0.4  # of the time that is left
BY_LOAD = {**FREE, "start": "least-load"}

BATCH = (
    Member("diviml-milp", "decide"),
    Member("diviml-milp", "decide", {"solver": "cp-sat"}),  # under contention too
    Member("multilevel", "search", {}, STEPS, shortest=TURN),
    # Going on from the best plan is soon in vain, and one annealing twice as long finds much more.
    # Where it starts decides where it ends: from a split of least load, and from lists.
    Member("annealing", "search", BY_LOAD, STEPS, afresh=True, shortest=TURN, first_share=LONG),
    Member("annealing", "search", FREE, STEPS, afresh=True, shortest=TURN, first_share=LONG),
    Member("annealing", "search", FREE, STEPS, shortest=TURN),
    Member("transfers", "prove", share=0.5, prover="batch.together:prove"),
    Member("milp-split", "prove", share=0.15),
    # For long, from starts of their own: many rounds lead elsewhere than a turn's few.
    Member("multilevel", "prove", share=0.5, afresh=True),
    Member("annealing", "prove", BY_LOAD, afresh=True),
)
