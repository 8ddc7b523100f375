"""Who takes part for objective ``latency``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placewright.portfolio.members.member import (
    CHAIN,
    ENOUGH,
    FREE,
    FULL,
    MODULES,
    PRICED,
    SHORT,
    STEPS,
    TIED,
    WHOLE,
    Member,
    Role,
)

NEIGHBOURHOODS = {"iterations": "20"}
RELAXATION = "latency.relaxation:prove"
STRETCHES = "latency.stretches:prove"
ANY_ORDER = "latency.any_order:prove"
LEARNING = 2.0  # seconds in which `lns` learns which neighbourhoods help
FEW_UNITS = 0.25  # of the ops
NODES = {"nodes": "200", "processes": "1"}

RESIDENT = {"memory": "resident"}
PEAK = {"memory": "peak"}


def of_its_own(
    role: Role, options: Mapping[str, str] | None = None, **when: Any
) -> tuple[Member, Member]:
    """`annealing` from a start of its own, on devices short of memory: a peak has no price."""
    priced, free = ({**each, **(options or {})} for each in (PRICED, FREE))
    return (
        Member("annealing", role, priced, afresh=True, where=RESIDENT, **when),
        Member("annealing", role, free, afresh=True, where=PEAK, **when),
    )


LATENCY = (
    Member("cp-sat", "decide", {"workers": "1"}),
    # Whole blocks are few: each as one op.
    Member(
        "annealing", "search", FREE, STEPS, coarsening="units", fewest_ops=200, most_units=FEW_UNITS
    ),
    Member(
        "lns",
        "search",
        {"workers": "1"},
        NEIGHBOURHOODS,
        coarsening="units",
        fewest_ops=200,
        most_units=FEW_UNITS,
    ),
    # A large model of equal layers: few of them are soon planned, the others placed alike.
    Member("region-moves", "construct", effort={}, coarsening="repeats+fusion", fewest_ops=2_000),
    Member("region-moves", "construct", effort={}, coarsening="repeats", fewest_ops=2_000),
    Member("annealing", "search", FREE, STEPS, coarsening="repeats+fusion", fewest_ops=2_000),
    Member("multilevel", "search", {}, STEPS, coarsening="repeats+fusion", fewest_ops=2_000),
    Member("annealing", "search", FREE, STEPS, coarsening="repeats", fewest_ops=2_000),
    Member("multilevel", "search", {}, STEPS, coarsening="repeats", fewest_ops=2_000),
    # What an engine fuses moves as one: attention heads, not ops, go to other devices.
    Member("multilevel", "search", {}, STEPS, coarsening="fusion", afresh=True, fewest_ops=500),
    Member("annealing", "search", FREE, STEPS, coarsening="fusion", fewest_ops=500),
    # On full devices what goes on from a simple plan is soon stuck: a start of its own comes first.
    *of_its_own("search", effort=STEPS, most_ops=3_000, memory=[FULL, SHORT]),
    Member("annealing", "search", PRICED, STEPS, memory=[FULL, SHORT], where=RESIDENT),
    Member("annealing", "search", FREE, STEPS),
    Member("annealing", "search", FREE, STEPS, afresh=True, most_ops=3_000, memory=[ENOUGH]),
    Member("multilevel", "search", {}, STEPS, afresh=True, fewest_ops=2_000),
    Member("lns", "search", {"workers": "1"}, NEIGHBOURHOODS, shortest=LEARNING),
    Member("multilevel", "search", {}, STEPS, fewest_ops=2_000),
    # Where modules follow one another in time but memory ties them, their program has a price for
    # that: nobody proves as much, while others find plans sooner.
    Member(
        "milp-split",
        "prove",
        {},
        NODES,
        shapes=[TIED],
        cores="processes",
        most_cores=8,
        core_share=0.5,
        most_ops=3_000,
    ),
    # Where whole blocks fill the devices, what is left over of their memory counts.
    Member("stretches", "prove", share=0.5, prover=STRETCHES, fewest_ops=200, most_units=FEW_UNITS),
    # Without what passes by its modules a training graph is a chain, of which as much is proved:
    # from a good plan sooner.
    *of_its_own(
        "prove",
        {"start": "simple"},
        share=0.3,
        shapes=[MODULES, WHOLE],
        passed=True,
        most_ops=3_000,
        memory=[FULL, SHORT],
    ),
    Member(
        "milp-split",
        "prove",
        {"processes": "1"},
        NODES,
        share=0.9,
        shapes=[MODULES, WHOLE],
        passed=True,
        most_ops=3_000,
    ),
    # Where devices are full single ops move, and most comes of one long search; prices of memory
    # bound that. Modules, which memory ties together, come after these.
    *of_its_own(
        "prove",
        {"start": "simple"},
        share=0.5,
        shapes=[MODULES, WHOLE],
        most_ops=5_000,
        memory=[SHORT],
    ),
    # Shorter where it has the one core that is left beside a member that leads.
    *of_its_own(
        "prove", {"start": "simple"}, share=0.3, shapes=[TIED], most_ops=5_000, memory=[SHORT]
    ),
    Member(
        "relaxation",
        "prove",
        share=0.5,
        prover=RELAXATION,
        shapes=[MODULES, WHOLE],
        memory=[SHORT],
    ),
    # Of fewer ops too a long search finds what no turn is long enough for; one from coarse to fine,
    # or of modules, finds what that does not.
    *of_its_own(
        "prove", {"start": "simple"}, share=0.3, shapes=[TIED, MODULES, WHOLE], memory=[FULL]
    ),
    Member("multilevel", "prove", share=0.3, afresh=True, shapes=[WHOLE], memory=[FULL]),
    # Narrow networks that fill unequal devices: where ops are says nearly all.
    Member(
        "any-order",
        "prove",
        share=0.5,
        prover=ANY_ORDER,
        shapes=[TIED, WHOLE],
        most_ops=300,
    ),
    # Large modules tied by memory have regions that are solved sooner than they are.
    Member("relaxation", "prove", share=0.3, prover=RELAXATION, shapes=[TIED]),
    Member(
        "module-annealing",
        "prove",
        {"processes": "1"},
        share=0.4,
        shapes=[TIED, MODULES],
        memory=[FULL],
    ),
    # Where modules follow one another in time nobody proves nearly as much as their program, which
    # searches too: it has the cores until all its modules are solved or given up.
    Member(
        "milp-split",
        "prove",
        {},
        NODES,
        shapes=[CHAIN],
        cores="processes",
        most_cores=8,
        most_ops=3_000,
    ),
    # With its first and last op held on other devices than the best simple plan has them, even a
    # graph that is one module shows plans that no small step leads to.
    Member(
        "module-annealing",
        "prove",
        {"processes": "1"},
        share=0.3,
        shapes=[WHOLE],
        most_ops=3_000,
    ),
    # Modules too large for that are still much smaller than the whole.
    Member(
        "module-annealing",
        "prove",
        {},
        {"turns": "20"},
        shapes=[MODULES],
        cores="processes",
        most_cores=8,
        core_share=0.5,
        memory=[ENOUGH],
    ),
    Member(
        "module-annealing",
        "prove",
        {"processes": "1"},
        {"turns": "20"},
        share=0.5,
        shapes=[TIED, MODULES],
        memory=[SHORT],
    ),
    Member(
        "module-annealing", "prove", {"processes": "1"}, share=0.3, shapes=[TIED], memory=[ENOUGH]
    ),
    # It gives every module all the memory, so that full devices leave little of its bound: there
    # it comes after all the others that prove.
    Member(
        "milp-split",
        "prove",
        {"processes": "1"},
        NODES,
        0.45,
        shapes=[MODULES, WHOLE],
        passed=False,
        most_ops=3_000,
        memory=[ENOUGH, SHORT],
    ),
    Member("relaxation", "prove", share=0.6, prover=RELAXATION, shapes=[MODULES]),
    Member("relaxation", "prove", share=0.4, prover=RELAXATION, shapes=[CHAIN, WHOLE]),
    Member("cp-sat", "prove", {"workers": "1"}, {"units": "5"}, most_ops=300, decides=True),
    Member(
        "milp-split",
        "prove",
        {"processes": "1"},
        NODES,
        0.3,
        shapes=[MODULES, WHOLE],
        passed=False,
        most_ops=3_000,
        memory=[FULL],
    ),
    # Which modules it finds is partly luck, and others find nothing beside it: again, from there.
    Member("module-annealing", "prove", {"processes": "1"}, shapes=[TIED, MODULES]),
)
