"""placewright: where each operator of a neural network runs, and how good that answer is.

>>> import placewright as pw
>>> plan = pw.plan("zoo:gpt3-13b", cluster="moirai-inter-server")     # doctest: +SKIP
>>> plan.value, plan.gap                                              # doctest: +SKIP
>>> plan.save("plan.json")                                            # doctest: +SKIP

Everything imported here is light; kernels, frameworks and file formats load when first used.
"""

import placewright.formats  # noqa: F401 - it tells the data how they are kept
from placewright.cluster import Cluster, Device, Link
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import (
    ClusterError,
    ExecutionError,
    FormatError,
    GraphError,
    InfeasibleError,
    InputError,
    MissingExtraError,
    OptionError,
    PlacewrightError,
    PlacewrightWarning,
    ProfileError,
    ProvedInfeasibleError,
    VerificationError,
)
from placewright.graph import Graph, GraphBuilder
from placewright.importers import Imported, load
from placewright.options import Options
from placewright.outcome import BatchSchedule, Invocations, Loads, Outcome, Schedule, Transfers
from placewright.plan import Placement, Plan
from placewright.planning import improve, plan
from placewright.problem import Problem
from placewright.report.html.writing import report
from placewright.report.remarks import remarks
from placewright.serving.planning import plan_request
from placewright.serving.served import ServingPlan
from placewright.solving import Comparison, compare, solve
from placewright.verify import Report, verify
from placewright.version import __version__
from placewright.whatif.explain.explaining import explain

__all__ = [
    "BatchSchedule",
    "Cluster",
    "ClusterError",
    "Comparison",
    "CostOptions",
    "Device",
    "ExecutionError",
    "FormatError",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "Imported",
    "InfeasibleError",
    "InputError",
    "Invocations",
    "Link",
    "Loads",
    "MissingExtraError",
    "OptionError",
    "Options",
    "Outcome",
    "Placement",
    "PlacewrightError",
    "PlacewrightWarning",
    "Plan",
    "Problem",
    "ProfileError",
    "ProvedInfeasibleError",
    "Report",
    "Schedule",
    "ServingPlan",
    "Transfers",
    "VerificationError",
    "__version__",
    "build_problem",
    "compare",
    "explain",
    "improve",
    "load",
    "load_cluster",
    "plan",
    "plan_request",
    "remarks",
    "report",
    "solve",
    "verify",
]
