"""Planners for objective ``latency``."""

from __future__ import annotations

from placewright.planners.table.entry import PlannerEntry

CELERITAS: dict[str, str] = {
    "order": "topological order that is cut: cpd, dfs or m-topo (cpd)",
    "reach": "R, the most ops in a group (200)",
    "memory_fraction": "M, the share of a device's memory a group may take (0.25)",
    "measure": "what a cut costs, per edge or per tensor (the transfer unit)",
    "group_order": "order of the groups: same, cpd, dfs or m-topo (same)",
}

PARTITIONER: dict[str, str] = {
    "balance": "what parts share evenly, by speed: time or memory (time)",
    "imbalance": "how much a part may exceed its share (0.03)",
}

LEARNED: dict[str, str] = {
    "episodes": "placements tried (hrl 12,800, placeto 1,600; with a time limit, no limit), 0: "
    "without training",
    "policy": "the file of a saved policy to go on from (none)",
    "save": "a file for the policy when training ends (none)",
    "nodes": "units of a larger graph are joined to about so many (hrl 1000, placeto 64)",
}

MILP: dict[str, str] = {
    "solver": "highs, scip or gurobi (highs)",
    "nodes": "limit on branch-and-bound nodes, which a run repeats exactly (none)",
    "start": "a heuristic planner whose plan to start from as well (none)",
}

LATENCY: tuple[PlannerEntry, ...] = (
    PlannerEntry(
        "single-device",
        "latency",
        "everything on the one device where that is fastest",
        "baseline of all the papers",
        "planners.latency.construct.simple:SingleDevice",
    ),
    PlannerEntry(
        "memory-fill",
        "latency",
        "fill devices one after another in topological order",
        "what Accelerate's automatic device map does",
        "planners.latency.construct.simple:MemoryFill",
    ),
    PlannerEntry(
        "met",
        "latency",
        "each op on the device that runs it fastest",
        "minimum execution time; DiviML §V-A",
        "planners.latency.construct.simple:MinimumExecutionTime",
    ),
    PlannerEntry(
        "m-topo",
        "latency",
        "topological order, memory spread evenly over the devices",
        "Baechi (Jeon et al., SoCC 2020); Celeritas §4.2",
        "planners.latency.construct.simple:MTopo",
    ),
    PlannerEntry(
        "depth-split",
        "latency",
        "stages of units by depth on a row of devices, their cuts moved while that helps",
        "how pipelines are cut; depth as HEFT's upward rank (Topcuoglu et al., TPDS 2002)",
        "planners.latency.construct.depth_split:DepthSplit",
    ),
    PlannerEntry(
        "greedy",
        "latency",
        "each op, in breadth-first order, where it finishes first",
        "DiviML §V-A",
        "planners.latency.construct.list_scheduling:Greedy",
    ),
    PlannerEntry(
        "heft",
        "latency",
        "longest remaining path first, into the gap where it finishes first",
        "HEFT (Topcuoglu et al., TPDS 2002)",
        "planners.latency.construct.list_scheduling:Heft",
    ),
    PlannerEntry(
        "m-etf",
        "latency",
        "always the op and device that can start first",
        "Baechi (Jeon et al., SoCC 2020); ETF (Hwang et al. 1989)",
        "planners.latency.construct.list_scheduling:MEtf",
    ),
    PlannerEntry(
        "m-sct",
        "latency",
        "earliest start, a device kept for its last op's favourite child",
        "Baechi (Jeon et al., SoCC 2020); SCT (Hanen & Munier 1995)",
        "planners.latency.construct.favourite_child:MSct",
        {
            "lp": "how favourite children are found: auto, glop, highs or descent (auto)",
            "threshold": "an edge below it in the program is a favourite, up to 0.5 (0.5)",
            "iterations": "steps of lp=descent (300)",
        },
    ),
    PlannerEntry(
        "getf",
        "latency",
        "a linear program picks a group of speeds, earliest start the device in it",
        "GETF (Su et al. 2020); Chudak & Shmoys 1999",
        "planners.latency.construct.getf:Getf",
        {
            "lp": "how the program is solved: auto, glop, highs or descent (auto)",
            "gamma": "speeds of a group differ by less than this factor (log m / log log m, ≥ 2)",
            "iterations": "steps of lp=descent (300)",
        },
    ),
    PlannerEntry(
        "order-place",
        "latency",
        "ops fused into groups, devices filled with them in topological order",
        "Celeritas (Xu et al. 2022) §5.2, §6.2.2",
        "planners.latency.construct.celeritas:OrderPlace",
        CELERITAS,
    ),
    PlannerEntry(
        "celeritas",
        "latency",
        "ops fused into groups, each stays with the one before unless leaving pays",
        "Celeritas (Xu et al. 2022) Alg. 1 and 2",
        "planners.latency.construct.celeritas:Celeritas",
        CELERITAS
        | {"transfers": "whose time a transfer takes: work, channels, or both tried (both)"},
    ),
    PlannerEntry(
        "region-moves",
        "latency",
        "whole regions of the graph go to another device at once, while that helps",
        "dominator regions (Cooper, Harvey & Kennedy 2001), steepest descent",
        "planners.latency.search.region_moves:RegionMoves",
        {"work": "millions of items timed from each start at most (400)"},
        formerly="seeds",
    ),
    PlannerEntry(
        "annealing",
        "latency",
        "simulated annealing over placements",
        "Kirkpatrick et al. 1983; DiviML §V-A",
        "planners.latency.search.strings:Annealing",
        {
            "iterations": "evaluations (at most 200,000; with a time limit, no limit)",
            "temperature": "seconds at the start (a twentieth of the mean worsening; order=free: "
            "up to four makespans per op, the more evaluations the hotter)",
            "cooling": "factor per as many evaluations as units (ends at 1/1000)",
            "order": "breadth-first, or free: search the order of ops and transfers too",
            "overfull": "never, or priced: with order=free devices may have too much on the way, "
            "at a price (never)",
            "start": "region-moves, or simple: with order=free the best of HEFT and simpler rules "
            "(region-moves)",
        },
        quick=False,
    ),
    PlannerEntry(
        "one-plus-one-ea",
        "latency",
        "biased (1+1) evolutionary algorithm over placements",
        "DiviML §V-A; Droste et al. 2002",
        "planners.latency.search.strings:OnePlusOneEA",
        {"iterations": "evaluations (at most 200,000; with a time limit, no limit)"},
        quick=False,
    ),
    PlannerEntry(
        "local-search",
        "latency",
        "best single-unit move until none helps, from random starts",
        "Tarnawski et al. 2020 §6",
        "planners.latency.search.strings:LocalSearch",
        {
            "iterations": "evaluations (at most 200,000; with a time limit, no limit)",
            "restarts": "random starts (10)",
        },
        quick=False,
    ),
    PlannerEntry(
        "metis",
        "latency",
        "METIS graph partitioning, memory repaired (extra partitioners)",
        "Karypis and Kumar 1997; Celeritas §6.2.2",
        "planners.latency.construct.partitioners:Metis",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "scotch",
        "latency",
        "Scotch mapping onto weighted devices, memory repaired (extra partitioners)",
        "Pellegrini 2009; Tarnawski et al. 2020 §6, §7",
        "planners.latency.construct.partitioners:Scotch",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "expert",
        "latency",
        "a placement from a file",
        "Tarnawski et al. 2020 §6, §7",
        "planners.latency.construct.expert:Expert",
        {
            "file": "the placement file (required)",
            "workload": "the workload file whose op numbers the placement uses (none)",
        },
        quick=False,
    ),
    PlannerEntry(
        "moirai-milp",
        "latency",
        "exact: mixed-integer program with memory and contention",
        "Moirai §III-D, eqs 4-8",
        "planners.latency.exact.moirai:MoiraiMilp",
        MILP,
        quick=False,
    ),
    PlannerEntry(
        "diviml-milp",
        "latency",
        "exact: mixed-integer program without contention",
        "DiviML §IV-A, eqs 1-7",
        "planners.latency.exact.diviml:DivimlMilp",
        MILP,
        quick=False,
    ),
    PlannerEntry(
        "cp-sat",
        "latency",
        "exact: constraint program with memory and contention",
        "CP-SAT (OR-Tools); the model of Moirai eqs 4-8",
        "planners.latency.exact.cp_sat:CpSat",
        {
            "workers": "CP-SAT's threads (2)",
            "level": "linearisation, 0 to 2 (1)",
            "units": "limit in CP-SAT's deterministic time; with one worker repeatable (none)",
            "start": "a heuristic planner whose plan to start from as well (none)",
        },
        quick=False,
    ),
    PlannerEntry(
        "lns",
        "latency",
        "neighbourhoods of a plan placed and ordered anew by CP-SAT",
        "large-neighbourhood search (Shaw 1998)",
        "planners.latency.exact.cp_sat:Lns",
        {
            "iterations": "neighbourhoods (200; with a time limit, no limit)",
            "workers": "neighbourhoods solved at the same time (2)",
            "units": "CP-SAT's deterministic time per neighbourhood at first (0.03)",
        },
        quick=False,
    ),
    PlannerEntry(
        "multilevel",
        "latency",
        "coarsened, searched and refined level by level; for very large graphs",
        "Karypis & Kumar 1998; Herrmann et al. 2019 (acyclic graphs)",
        "planners.latency.search.multilevel:Multilevel",
        {"iterations": "evaluations (200,000; with a time limit, no limit)"},
        quick=False,
    ),
    PlannerEntry(
        "milp-split",
        "latency",
        "modules solved exactly, joined by a dynamic program",
        "DiviML §IV-B",
        "planners.latency.modules.milp_split:MilpSplit",
        {
            "channels": "1 to 4, or auto: the fewest that give modules of at most 40 ops (auto)",
            "max_ops": "join neighbouring modules up to this size (none; 20 with more channels)",
            "solver": "cp-sat, highs, scip or gurobi (cp-sat)",
            "nodes": "limit per module: branch-and-bound nodes, or thousandths of CP-SAT's time "
            "(none)",
            "module_seconds": "limit per module and pair of devices (60)",
            "processes": "modules solved at the same time, each on a core (as many as cores, at "
            "most 8)",
            "ray": "solve modules on Ray: auto, local, HOST:PORT or ray://HOST:PORT (none)",
        },
        quick=False,
    ),
    PlannerEntry(
        "module-annealing",
        "latency",
        "modules annealed one by one, joined by a shortest path",
        "dynamic program of DiviML §IV-B1, annealing for the solver",
        "planners.latency.modules.annealing:ModuleAnnealing",
        {
            "turns": "of a module each (60; with a time limit, no limit)",
            "processes": "modules annealed at the same time (1)",
        },
        quick=False,
    ),
    PlannerEntry(
        "hrl",
        "latency",
        "learns: a grouper of ops and a placer of groups, by policy gradients (extra torch)",
        "Mirhoseini et al., ICLR 2018; Moirai §IV, Celeritas §6.2.2",
        "planners.latency.learned.planners:Hrl",
        LEARNED
        | {"groups": "of nodes (an eighth as many as these; at most 20 per device, and 256)"},
        quick=False,
        learns=True,
    ),
    PlannerEntry(
        "placeto",
        "latency",
        "learns: a policy that revises one op's device after another (extra torch)",
        "Addanki et al., NeurIPS 2019; Moirai §IV",
        "planners.latency.learned.planners:Placeto",
        LEARNED,
        quick=False,
        learns=True,
    ),
)
