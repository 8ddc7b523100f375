"""From a source and a cluster to one verified plan, and from a plan to a better one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright import planners
from placewright.cluster import Cluster
from placewright.coarsen import check_name
from placewright.coarsen.granularity import check_granularity, with_granularity
from placewright.coarsen.recompute import advised, called_ops, check_blocks_whole, recomputing
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, changed_problem
from placewright.errors import InputError, OptionError
from placewright.graph import WHOLE_MEMORY, Graph
from placewright.importers import Imported, load
from placewright.options import (
    check_called,
    check_kind,
    check_mapping,
    check_seconds,
    check_seed,
    check_training,
    chosen_options,
)
from placewright.plan import History, Placement, Plan
from placewright.problem import Problem
from placewright.solving import solve
from placewright.stash import views
from placewright.verify import verify

if TYPE_CHECKING:
    from placewright.budget import Lesson, Progress
    from placewright.portfolio.events import Observer

AUTO = "auto"
LEARNING = tuple(row.name for row in planners.TABLE if row.learns)
DEFAULT_COSTS = CostOptions()

Source = str | Path | Graph | Imported | Problem


def plan(
    source: Source,
    cluster: Cluster | str | Path | None = None,
    *,
    planner: str = AUTO,
    objective: str | None = None,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    planner_options: Mapping[str, str] | None = None,
    coarsening: str = "none",
    granularity: str = "op",
    time_limit: float = float("inf"),
    seed: int = 0,
    warm_start: Plan | str | Path | None = None,
    checkpoint: str | Path | None = None,
    on_event: Observer | None = None,
    on_progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Plan `source` on `cluster` and return a verified `Plan`.

    `source` is a file, ``zoo:NAME``, ``torch:PACKAGE.MODULE:FACTORY``, ``hf:CONFIG``, a `Graph`
    or a ready `Problem`. `cluster` is a preset's name, a file or a `Cluster`; a published
    workload brings its own. `options` are fields of `Options`, such as ``contention="port"``;
    those left out are the source's own, else the defaults.

    With `granularity` ``module`` or ``block`` no module, or repeated unit of the model, is split
    (see `coarsen.granularity`); value and bound are then of such plans.

    `planner` ``auto`` asks its members (see `portfolio`) in turns until the time limit (10 s if
    there is none) or until a plan is proved optimal. Without `coarsening` it tells `on_event` of
    every better plan and bound, and keeps the best plan in the file `checkpoint`. `warm_start` is
    a plan of the same ops, or its file.

    Raises InputError for what cannot be used and InfeasibleError where no plan can exist or the
    planner found none.

    >>> p = plan("zoo:gpt2", "2x3090", planner="heft")
    >>> p.planner, p.lower_bound <= p.value
    ('heft', True)
    """
    given = {**options, "objective": objective}

    def made(costs: CostOptions) -> tuple[Problem, str]:
        return make_problem(
            source,
            cluster,
            given,
            training=training,
            costs=costs,
            pinned=pinned,
            coarsening=coarsening,
            granularity=granularity,
        )

    problem, source_name = made(costs)
    with advised(problem, lambda: made(replace(costs, recompute="block"))[0]):
        return plan_problem(
            problem,
            planner=planner,
            planner_options=planner_options,
            coarsening=coarsening,
            time_limit=time_limit,
            seed=seed,
            warm_start=warm_start,
            checkpoint=checkpoint,
            source=source_name,
            on_event=on_event,
            on_progress=on_progress,
        )


def plan_problem(
    problem: Problem,
    *,
    planner: str = AUTO,
    planner_options: Mapping[str, str] | None = None,
    coarsening: str = "none",
    time_limit: float = float("inf"),
    seed: int = 0,
    warm_start: Plan | str | Path | None = None,
    checkpoint: str | Path | None = None,
    source: str = "",
    on_event: Observer | None = None,
    on_progress: Progress | None = None,
) -> Plan:
    """`plan` for a problem that is made already."""
    from placewright.budget import no_progress

    problem.options.require_full_pipeline("this planner")
    check_mapping(planner_options, "planner_options", "{'gap': '0.01'}")
    check_seconds(time_limit)
    check_called(on_event=on_event, on_progress=on_progress)
    check_kind(checkpoint, (str, Path, type(None)), "checkpoint", "the name of a file")
    seed = check_seed(seed)
    start = None if warm_start is None else _start(warm_start, problem)
    if not asks_portfolio(planner, coarsening):
        return solve(
            problem,
            planner,
            planner_options=planner_options,
            coarsening=coarsening,
            time_limit=time_limit,
            seed=seed,
            start=start,
            source=source,
            on_progress=on_progress,
            on_lesson=_told(on_event, planner),
        )
    from placewright.portfolio import Limits, best_plan
    from placewright.portfolio.events import warn_of_failures
    from placewright.portfolio.planner import Auto

    asked = planners.create(AUTO, planner_options, problem.options.objective)
    assert isinstance(asked, Auto)
    return best_plan(
        problem,
        Limits.of(time_limit, asked.iterations, asked.gap),
        seed=seed,
        processes=asked.processes,
        ray=asked.ray,
        start=start,
        source=source,
        checkpoint=checkpoint,
        on_event=on_event or warn_of_failures,
        on_progress=on_progress or no_progress,
    )


def asks_portfolio(planner: str, coarsening: str) -> bool:
    """Whether the portfolio plans itself, with events and checkpoints, not as one planner."""
    return planner == AUTO and coarsening == "none"


def tells(planner: str, coarsening: str) -> bool:
    """Whether there are events of it: better plans and bounds, or a learning curve."""
    return asks_portfolio(planner, coarsening) or planner in LEARNING


def _told(on_event: Observer | None, planner: str) -> Callable[[Lesson], None] | None:
    """What makes an event of each point of a planner's learning curve."""
    if on_event is None:
        return None

    def tell(lesson: Lesson) -> None:
        from placewright.portfolio.events import Event  # with all of the portfolio

        on_event(Event("episodes", lower_bound=0.0, source=planner, **vars(lesson)))

    return tell


def _start(warm_start: Plan | str | Path, problem: Problem) -> Placement:
    """The placement of a plan; what runs again is where it ran first."""
    from placewright.analysis.warm_start import starting_placement

    plan, path = warm_start, "the plan"
    if not isinstance(plan, Plan):
        plan, path = Plan.load(plan), str(warm_start)
    found = starting_placement(plan, problem, path, called_ops(problem))
    check_blocks_whole(problem, found.device, path)
    return found


def make_problem(
    source: Source,
    cluster: Cluster | str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    coarsening: str = "none",
    granularity: str = "op",
    together: bool = False,
    recomputed: Collection[str] | None = None,
) -> tuple[Problem, str]:
    """The problem of a source on a cluster, and the source's name for the plan's provenance.

    With `coarsening` ``fusion`` groups of ops take what they were measured to take as one; with
    another `granularity` than ``op`` what may not be split is colocated; with `together` ops that
    share weights are on one device, where a pipeline could have copies. Of blocks that can be
    recomputed only those of the names `recomputed` are, if given.
    """
    check_granularity(granularity)
    check_mapping(pinned, "pinned", "{'embedding': 'gpu0'}")
    if not isinstance(costs, CostOptions):
        raise OptionError(f"costs is {costs!r}; give CostOptions(...)")
    check_name(coarsening)
    if isinstance(source, Problem):
        if cluster is not None or pinned or any((options or {}).values()):
            raise OptionError("a Problem has its devices and options already; give a graph instead")
        return with_granularity(source, granularity), source.name
    source = imported(source, training=training)
    if isinstance(cluster, (str, Path)):
        cluster = load_cluster(str(cluster))
    if not isinstance(cluster, Cluster | None):
        raise OptionError(f"cluster is {cluster!r}; give a Cluster, a file or a preset's name")
    cluster = cluster or source.cluster
    if cluster is None:
        raise InputError(
            f"{source.source} has no devices of its own; name a cluster (--cluster), "
            "such as 2x3090, this-machine or a file"
        )
    chosen = chosen_options(source.options, options or {})
    make = partial(changed_problem, source.graph, cluster, chosen, costs, pinned or {}, together)
    if costs.optimizer != DEFAULT_COSTS.optimizer and not source.graph.is_training:
        raise OptionError(
            f"optimizer {costs.optimizer} is about training, and {source.graph.name} has no "
            "backward ops; give --training, or leave it out"
        )
    if costs.recompute == "none":
        problem = make()
    else:
        check_recomputes(source.graph)
        if costs.recompute == "needed":
            raise OptionError(
                "recompute needed is for plans for an engine with --micro-batches (--for megatron, "
                "deepspeed or torch-pipelining); give --recompute block"
            )
        every = partial(recomputing, is_view=views(source.graph))
        some = None if recomputed is None else partial(every, only=recomputed)
        problem = make(every) if some is None else make(some, every)
    problem = with_granularity(problem, granularity)
    if "fusion" in coarsening.split("+"):
        problem = _fused(problem, source.graph, cluster, costs)
    return problem, source.source


def imported(source: str | Path | Graph | Imported, *, training: bool = False) -> Imported:
    """What a source brings; `training` is for one that is still to be read."""
    check_training(training)
    graph = source.graph if isinstance(source, Imported) else source
    if training and isinstance(graph, Graph) and not graph.is_training:
        raise OptionError(
            f"training is for sources that are still to be read, and {graph.name} has no backward "
            "ops; give its source, or load(..., training=True)"
        )
    if isinstance(source, Graph):
        return Imported(source, source=source.name)
    return source if isinstance(source, Imported) else load(source, training=training)


def check_recomputes(graph: Graph) -> None:
    """OptionError where nobody says what training keeps of blocks that could run again."""
    if not graph.is_training:
        raise OptionError(
            f"recompute is about training, and {graph.name} has no backward ops; give --training, "
            "or leave it out"
        )
    if graph.attributes.get(WHOLE_MEMORY):
        raise OptionError(
            f"{graph.name} does not say what activations it keeps, its memory is given whole; "
            "leave out recompute"
        )


def _fused(problem: Problem, graph: Graph, cluster: Cluster, costs: CostOptions) -> Problem:
    """With the times of the groups that `--coarsen fusion` makes, where they were measured."""
    from placewright.coarsen.fusion import fusion_groups
    from placewright.costs.profiles.fused import with_fused_times
    from placewright.costs.profiles.lookup import is_there

    if not is_there(costs.profiles):
        return problem
    return with_fused_times(problem, graph, fusion_groups(problem), cluster.devices, costs.profiles)


def improve(
    plan: Plan | str | Path,
    *,
    planner: str = AUTO,
    planner_options: Mapping[str, str] | None = None,
    time_limit: float = float("inf"),
    seed: int = 0,
    checkpoint: str | Path | None = None,
    on_event: Observer | None = None,
    on_progress: Progress | None = None,
) -> Plan:
    """Plan the problem of `plan` again from where it stands; the better of the two plans.

    With the better of the two bounds, unless the plan's own was above what is found now, and so
    wrong. Raises VerificationError where `plan` does not hold.

    >>> better = improve("plan.json", time_limit=60)        # doctest: +SKIP
    """
    old = plan if isinstance(plan, Plan) else Plan.load(plan)
    old.problem.options.require_full_plan("improve")
    verify(old).raise_if_failed()
    new = plan_problem(
        old.problem,
        planner=planner,
        planner_options=planner_options,
        time_limit=time_limit,
        seed=seed,
        warm_start=old,
        checkpoint=checkpoint,
        source=old.source,
        on_event=on_event,
        on_progress=on_progress,
    )
    better = new if new.value < old.value else replace(old, seconds=new.seconds)
    better = replace(better, history=_in_a_row(old, new))
    proofs = [new] + ([old] if old.lower_bound <= better.value else [])
    proof = max(proofs, key=lambda plan: plan.lower_bound)
    return replace(better, lower_bound=proof.lower_bound, bound_source=proof.bound_source)


def _in_a_row(old: Plan, new: Plan) -> History | None:
    """How planning went, then and now; only now where of then nothing is known."""
    if old.history is None or new.history is None:
        return new.history
    return old.history.then(new.history)
