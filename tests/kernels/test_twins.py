"""Every kernel is compared with a slow, obvious twin, or it stands here how else it is tested."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import placewright.kernels

KERNELS = Path(placewright.kernels.__file__).parent
TESTS = Path(__file__).parents[1]


class Twin(NamedTuple):
    """What a kernel is compared with, and the test that does so.

    `through` is what the test calls where it does not call the kernel itself: a function, method
    or planner that does. What it is compared with is a function of `tests.naive`, or one of the
    package that is as slow and obvious as a twin.
    """

    test: str
    twin: str
    through: str = ""


LATENCY = "tests.naive.latency"
BATCH = "planners.batch.test_batch"
INCREMENTAL = "kernels.latency.test_incremental"
MATCHING = "kernels.latency.test_multilevel_matching"
REGIONS = "kernels.latency.test_regions"
RELAXATION = "kernels.latency.test_relaxation"
SEARCH = "planners.latency.search.test_search"
IDEALS = "planners.throughput.test_ideal_dp"

TWINS = {
    "batch.ejection.make_room": Twin(
        "kernels.batch.test_ejection", "tests.naive.batch_ejection.Ejection"
    ),
    "batch.lists.list_batches": Twin(BATCH, "tests.naive.batch.list_schedule", "list_in_order"),
    "batch.tails.find_tails": Twin(BATCH, "tests.naive.batch.tails_in_order"),
    "batch.timing.retime": Twin(BATCH, "tests.naive.batch.run_in_order"),
    "batch.timing.settle": Twin(BATCH, "tests.naive.batch.run_in_order", "finish"),
    "common.dominators._find_parents": Twin(
        REGIONS, "tests.naive.regions.dominated", "dominator_tree"
    ),
    "common.dominators._number": Twin(REGIONS, "tests.naive.regions.dominated", "dominator_tree"),
    "common.lifting.lift": Twin("coarsen.test_shortening", "tests.naive.coarsen.lifted"),
    "common.components.adjacency": Twin(
        "kernels.common.test_components", "tests.naive.components.neighbours"
    ),
    "common.components.strong_components": Twin(
        "kernels.common.test_components", "tests.naive.components.strong_components"
    ),
    "common.ranks._upward_ranks": Twin(
        "kernels.latency.test_insertion", f"{LATENCY}.upward_ranks", "upward_ranks"
    ),
    "invocation.hulls.enclose": Twin(
        "bounds.invocation.test_bounds", "tests.naive.invocation.least_latency", "path_bound"
    ),
    "invocation.ideal_blocks.fill_blocks": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_latency", "solve"
    ),
    "invocation.ideal_cpus.relax_on_cpus": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_latency", "solve"
    ),
    "invocation.ideal_cpus.fill_with_cpus": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_latency", "solve"
    ),
    "invocation.ideal_cpus.extend_with_cpus": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_latency", "solve"
    ),
    "invocation.ideal_reach.extend_beside": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_latency", "solve"
    ),
    "invocation.ideal_reach.extend_by_level": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_row", "Table"
    ),
    "invocation.ideal_reach.extend_by_steps": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_row", "Table"
    ),
    "invocation.ideal_steps.count_steps": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_row", "Table"
    ),
    "invocation.ideal_steps.fill_steps": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_row", "Table"
    ),
    "invocation.ideal_steps.turn_round": Twin(
        "planners.invocation.test_ideal_dp", "tests.naive.invocation.least_row", "Floors"
    ),
    "invocation.search.anneal": Twin(
        "planners.invocation.test_invocation", "tests.naive.invocation.least_latency", "Annealing"
    ),
    "invocation.search.settle": Twin(
        "planners.invocation.test_invocation", "tests.naive.invocation.least_latency", "Annealing"
    ),
    "invocation.segments.best_segments": Twin(
        "kernels.invocation.test_segments", "tests.naive.invocation.cheapest_split"
    ),
    "invocation.ways.shortest_way": Twin(
        "bounds.invocation.test_ways", "tests.naive.invocation_ways.least_seconds", "Ways"
    ),
    "invocation.timing.evaluate": Twin(
        "simulate.test_invocation", "tests.naive.invocation.latency", "latency"
    ),
    "latency.adjusting.adjusting_schedule": Twin(
        "planners.latency.construct.test_celeritas", "tests.naive.celeritas.adjusting_schedule"
    ),
    "latency.bound_chain.cheapest_chain": Twin(RELAXATION, "tests.naive.relaxation.cheapest_chain"),
    "latency.bound_chain.pair_values": Twin(
        RELAXATION, "tests.naive.relaxation.cheapest_placement"
    ),
    "latency.bound_fan_out.case_bound": Twin(
        "bounds.latency.relaxation.test_repeated_regions",
        "tests.naive.copies.shortest_with_copies",
    ),
    "latency.bound_fan_out.heads_and_tails": Twin(
        "bounds.latency.relaxation.test_repeated_regions", "tests.naive.copies.heads_and_tails"
    ),
    "latency.bound_paths.arrivals": Twin(RELAXATION, "tests.naive.relaxation.earliest_ends"),
    "latency.bound_paths.mark_arcs": Twin(RELAXATION, "tests.naive.relaxation.arcs_below"),
    "latency.bound_paths.mark_between": Twin(RELAXATION, "tests.naive.relaxation.between"),
    "latency.bound_paths.mark_cuts": Twin(
        "bounds.latency.relaxation.test_repeated_regions", "tests.naive.copies.cuts"
    ),
    "latency.bound_paths.measure_regions": Twin(RELAXATION, "tests.naive.relaxation.seconds_alone"),
    "latency.bound_paths.meeting_points": Twin(RELAXATION, "tests.naive.relaxation.meeting_point"),
    "latency.bound_paths.remainders": Twin(RELAXATION, "tests.naive.relaxation.least_rest"),
    "latency.bound_slots.slots_bound": Twin(
        "bounds.latency.relaxation.test_regions_in_slots", "tests.naive.slots.value"
    ),
    "latency.chain_ways.shortest_way": Twin(
        "kernels.latency.test_chain_ways", "tests.naive.chain_ways.shortest"
    ),
    "latency.dispatch.dispatch": Twin(
        "kernels.latency.test_dispatch", "tests.naive.dispatch.dispatch"
    ),
    "latency.dual_ascent.add_loads": Twin(RELAXATION, "tests.naive.relaxation.loads"),
    "latency.dual_ascent.pair_prices": Twin(RELAXATION, "tests.naive.relaxation.pair_prices"),
    "latency.dual_ascent.sweep": Twin(RELAXATION, "tests.naive.relaxation.cheapest_placement"),
    "latency.dual_ascent.region_bound": Twin(RELAXATION, f"{LATENCY}.shortest_makespan"),
    "latency.earliest_start._place": Twin(
        "kernels.latency.test_earliest_start",
        f"{LATENCY}.earliest_start_placement",
        "earliest_start_placement",
    ),
    "latency.ejection.make_room": Twin(
        "kernels.latency.test_ejection", "tests.naive.ejection.Ejection"
    ),
    "latency.favourite_child._place": Twin(
        "planners.latency.construct.test_m_sct",
        "tests.naive.lp_planners.favourite_child_placement",
        "favourite_child_placement",
    ),
    "latency.favourite_child.favourite_descent": Twin(
        "planners.latency.construct.test_m_sct", "tests.naive.lp_planners.favourite_descent"
    ),
    "latency.getf.assignment_descent": Twin(
        "planners.latency.construct.test_getf", "tests.naive.lp_planners.assignment_descent"
    ),
    "latency.getf.dual_value": Twin(
        "planners.latency.construct.test_getf", "tests.naive.lp_planners.dual_value"
    ),
    "latency.getf.soft_longest_path": Twin(
        "planners.latency.construct.test_m_sct", "tests.naive.lp_planners.soft_longest_path"
    ),
    "latency.getf.sweep_colours": Twin(
        "planners.latency.construct.test_m_sct",
        "tests.naive.lp_planners.equitable_classes",
        "Symmetry",
    ),
    "latency.incremental.commit": Twin(INCREMENTAL, f"{LATENCY}.time_sequence"),
    "latency.incremental.find_tails": Twin(INCREMENTAL, f"tests.{INCREMENTAL}.longest_paths"),
    "latency.incremental.retime": Twin(INCREMENTAL, f"{LATENCY}.time_sequence"),
    "latency.insertion.insertion_schedule": Twin(
        "kernels.latency.test_insertion", f"{LATENCY}.insertion_schedule"
    ),
    "latency.multilevel_matching.depths_of": Twin(
        "planners.latency.search.test_multilevel", "tests.naive.multilevel.depths"
    ),
    "latency.multilevel_matching.heads_and_tails": Twin(
        MATCHING, "tests.naive.multilevel.heads_and_tails"
    ),
    "latency.multilevel_matching.join_pairs": Twin(MATCHING, "tests.naive.multilevel.join_pairs"),
    "latency.multilevel_matching.join_units": Twin(MATCHING, "tests.naive.multilevel.join_units"),
    "latency.multilevel_matching.losses": Twin(
        "planners.latency.search.test_multilevel", "tests.naive.multilevel.longest_path"
    ),
    "latency.multilevel_matching.ordered": Twin(MATCHING, "tests.naive.multilevel.ordered"),
    "latency.multilevel_timing.settle": Twin(
        "planners.latency.search.test_multilevel", "tests.naive.multilevel.tails", "Search"
    ),
    "latency.moves.move_block": Twin(SEARCH, "tests.naive.search.Searcher"),
    "latency.narrow_cuts.narrow_cuts": Twin(
        "analysis.test_modules", "tests.naive.coarsen.naive_narrow_cuts", "split_modules"
    ),
    "latency.refining.find_critical": Twin(INCREMENTAL, f"tests.{INCREMENTAL}.longest_paths"),
    "latency.region_moves.descend": Twin(REGIONS, f"{LATENCY}.time_sequence"),
    "latency.region_moves.describe": Twin(REGIONS, "tests.naive.regions.behind"),
    "latency.region_moves.move_values": Twin(REGIONS, f"{LATENCY}.time_sequence"),
    "latency.region_moves.members": Twin(REGIONS, "tests.naive.regions.beside"),
    "latency.robust.anneal": Twin("whatif.test_robust", "tests.naive.robust.Annealer"),
    "latency.robust.percentile_within": Twin(
        "whatif.test_robust", "tests.naive.robust.percentile_within"
    ),
    "latency.robust.time_block": Twin(
        "whatif.test_robust", "tests.naive.robust.makespan", "makespans"
    ),
    "latency.search.anneal": Twin(SEARCH, "tests.naive.search.Searcher"),
    "latency.search.descend": Twin(SEARCH, "tests.naive.search.Searcher"),
    "latency.search.evolve": Twin(SEARCH, "tests.naive.search.Searcher"),
    "latency.search.scatter": Twin(SEARCH, "tests.naive.search.Searcher"),
    "latency.sequential._breadth_first": Twin(
        "coarsen.test_sequential", "tests.naive.celeritas.breadth_first_order", "order_named"
    ),
    "latency.sequential._cut": Twin(
        "coarsen.test_sequential", "tests.naive.celeritas.cheapest_cuts", "cheapest_cuts"
    ),
    "latency.sequential._depth_first": Twin(
        "coarsen.test_sequential", "tests.naive.celeritas.depth_first", "dfs_topo"
    ),
    "latency.sequential._by_label": Twin(
        "coarsen.test_sequential", "tests.naive.celeritas.by_label", "by_label"
    ),
    "latency.sequential._top_levels": Twin(
        "coarsen.test_sequential", "tests.naive.celeritas.top_levels", "top_levels"
    ),
    "latency.timing.repeat_timing": Twin("kernels.latency.test_timing", f"{LATENCY}.time_sequence"),
    "latency.timing.time_sequence": Twin("kernels.latency.test_timing", f"{LATENCY}.time_sequence"),
    "latency.within_memory.value_within_memory": Twin(
        "simulate.test_within_memory", "tests.naive.peak.gated"
    ),
    "throughput.dominance.heavy_nodes": Twin(
        "kernels.throughput.test_dominance", "tests.naive.dominance.stage_seconds"
    ),
    "throughput.ejection.has_room": Twin(
        "kernels.throughput.test_ejection", "tests.naive.pipeline_ejection.Ejection"
    ),
    "throughput.ejection.make_room": Twin(
        "kernels.throughput.test_ejection", "tests.naive.pipeline_ejection.Ejection"
    ),
    "throughput.ideal_dp.find_chain": Twin(IDEALS, "tests.naive.throughput.best_split", "IdealDP"),
    "throughput.ideal_dp.fewest": Twin(IDEALS, "tests.naive.throughput.best_split", "IdealDP"),
    "throughput.ideal_dp.followed": Twin(IDEALS, "tests.naive.throughput.best_split", "IdealDP"),
    "throughput.stage_transfers.beside_ideals": Twin(
        IDEALS, "tests.naive.throughput.best_split", "IdealDP"
    ),
    "throughput.ideal_dp.survivors": Twin(IDEALS, "tests.naive.throughput.best_split", "IdealDP"),
    "throughput.ideals.open_places": Twin(
        IDEALS, "tests.naive.throughput.all_splits", "best_of_lines"
    ),
    "throughput.ideals.passable": Twin(IDEALS, "tests.naive.throughput.best_split", "IdealDP"),
    "throughput.ideal_listing.surviving_ideals": Twin(
        IDEALS, "tests.naive.throughput.best_split", "IdealDP"
    ),
    "throughput.least_chain.least_chain": Twin(
        IDEALS, "tests.naive.throughput.best_split", "IdealDP"
    ),
    "throughput.line_dp.best_cuts": Twin(
        IDEALS, "tests.naive.throughput.all_splits", "best_of_lines"
    ),
    "throughput.descent.descend": Twin(
        "kernels.throughput.test_loads", "tests.naive.max_load.least_after_one_move"
    ),
    "throughput.pairs.choices_to": Twin(
        "kernels.throughput.test_pairs", "tests.naive.max_load.busy_seconds", "sharings"
    ),
    "throughput.pairs.shared_loads": Twin(
        "kernels.throughput.test_pairs", "tests.naive.max_load.all_sharings", "sharings"
    ),
    "throughput.row_cuts.copies_sent": Twin(
        "planners.throughput.test_row_cuts", "tests.naive.row_cuts.naive_copies"
    ),
    "throughput.row_cuts.crossing": Twin(
        "planners.throughput.test_row_cuts", "tests.naive.row_cuts.naive_crossing"
    ),
    "throughput.row_cuts.cut_row": Twin(
        "planners.throughput.test_row_cuts", "tests.naive.row_cuts.best_cut"
    ),
    "throughput.loads.move": Twin(
        "planners.throughput.test_row_cuts", "placewright.simulate.evaluate"
    ),
    "throughput.loads.refill": Twin(
        "planners.throughput.test_row_cuts", "placewright.simulate.evaluate", "boards"
    ),
    "throughput.loads.restore": Twin(
        "planners.throughput.test_row_cuts", "placewright.simulate.evaluate"
    ),
    "throughput.loads.settle": Twin(
        "planners.throughput.test_row_cuts", "placewright.simulate.evaluate"
    ),
    "throughput.loads.value": Twin(
        "planners.throughput.test_row_cuts", "placewright.simulate.evaluate"
    ),
    "throughput.stage_loads.adjacent_nets": Twin(
        "kernels.common.test_components", "tests.naive.components.nets_of"
    ),
    "throughput.stage_loads.chain_rows": Twin(
        IDEALS, "placewright.simulate.throughput.loads", "evaluated"
    ),
    "throughput.step_rows.best_steps": Twin(
        "exporters.test_steps", "tests.naive.steps.every_step", "best_of_steps"
    ),
    "throughput.steps.step_of": Twin("kernels.throughput.test_steps", "tests.naive.steps.step_of"),
    "throughput.stage_rows.best_stages": Twin(
        "exporters.test_row_search", "tests.naive.stage_rows.best_row", "best_of_rows"
    ),
}

# Kernels without a twin that other kernels call: what they do is compared with what those do.
PARTS = {
    "batch.changes.has_room": "batch.search.anneal",
    "batch.changes.take_back": "batch.search.anneal",
    "batch.search.keep": "batch.search.anneal",
    "batch.moves.move": "batch.search.anneal",
    "batch.timing.commit": "batch.search.anneal",
    "common.gaps.with_capacity": "latency.insertion.insertion_schedule",
    "latency.moves.assign": "latency.search.anneal",
    "latency.moves.below": "latency.search.anneal",
    "latency.moves.geometric": "latency.search.anneal",
    "latency.moves.fits": "latency.search.anneal",
    "latency.moves.span": "latency.multilevel_search.improve",
    "latency.moves.take_back": "latency.search.anneal",
    "latency.refining.draw": "latency.refining.refine",
    "latency.region_moves.move_region": "latency.region_moves.move_values",
    "latency.region_moves.value_of": "latency.region_moves.move_values",
    "latency.search.evaluate": "latency.search.anneal",
    "latency.search.keep": "latency.search.anneal",
    "latency.within_memory.time_within_memory": "latency.within_memory.value_within_memory",
    "throughput.ideal_dp.clear": "throughput.ideal_dp.find_chain",
    "throughput.ideal_dp.fill": "throughput.ideal_dp.find_chain",
    "throughput.ideal_dp.within": "throughput.ideal_dp.find_chain",
    "throughput.stage_loads.charges": "throughput.line_dp.best_cuts",
}

# Kernels that nothing slower does again: changes drawn at random and taken back, searches that go
# their own way. The test of what holds for each, whatever it drew.
WITHOUT = {
    "batch.search.anneal": (
        "planners.batch.test_batch.test_annealing_stays_sound_and_does_the_same_however_it_is_cut"
    ),
    "batch.search.evolve": (
        "planners.batch.test_batch"
        ".test_evolution_stays_sound_gets_no_worse_and_does_the_same_however_it_is_cut"
    ),
    "batch.search.mean_worsening": (
        "planners.batch.test_batch.test_sampling_the_temperature_leaves_everything_in_place"
    ),
    "invocation.search.make_room": (
        "kernels.invocation.test_room"
        ".test_units_stay_together_books_are_kept_and_all_can_be_taken_back"
    ),
    "invocation.segments.random_order": (
        "kernels.invocation.test_segments.test_orders_stay_topological"
    ),
    "invocation.segments.shift_atom": (
        "kernels.invocation.test_segments.test_orders_stay_topological"
    ),
    "latency.incremental.forget": (
        f"{INCREMENTAL}.test_a_change_is_timed_as_if_from_the_beginning_and_can_be_taken_back"
    ),
    "latency.moves.assign_all": f"{SEARCH}.test_a_walk_goes_on_from_any_string",
    "latency.multilevel_search.improve": (
        "planners.latency.search.test_multilevel.test_the_search_keeps_its_books"
    ),
    "latency.multilevel_search.keep": (
        "planners.latency.search.test_multilevel.test_the_search_keeps_its_books"
    ),
    "latency.multilevel_search.return_to_best": (
        "planners.latency.search.test_multilevel.test_a_worse_order_is_not_taken"
    ),
    "latency.multilevel_timing.restore": (
        "planners.latency.search.test_multilevel"
        ".test_a_window_tells_what_a_change_within_it_comes_to"
    ),
    "latency.multilevel_timing.window": (
        "planners.latency.search.test_multilevel"
        ".test_a_window_tells_what_a_change_within_it_comes_to"
    ),
    "latency.order_moves.extent": (
        f"{INCREMENTAL}.test_a_change_is_timed_as_if_from_the_beginning_and_can_be_taken_back"
    ),
    "latency.order_moves.redevice": (
        f"{INCREMENTAL}.test_a_change_is_timed_as_if_from_the_beginning_and_can_be_taken_back"
    ),
    "latency.order_moves.reorder_edge": f"{INCREMENTAL}.test_a_changed_order_is_still_topological",
    "latency.order_moves.reorder_op": f"{INCREMENTAL}.test_a_changed_order_is_still_topological",
    "latency.passing.undo_order": (
        f"{INCREMENTAL}.test_a_change_is_timed_as_if_from_the_beginning_and_can_be_taken_back"
    ),
    "latency.refining.refine": (f"{INCREMENTAL}.test_annealing_is_the_same_however_it_is_cut"),
    "latency.search.mean_worsening": (
        f"{SEARCH}.test_sampling_the_temperature_leaves_everything_in_place"
    ),
    "throughput.annealing.anneal": (
        "planners.throughput.test_row_cuts"
        ".test_plans_pass_the_judge_and_moves_never_make_them_worse"
    ),
    "throughput.loads.fits": (
        "planners.throughput.test_row_cuts"
        ".test_loads_stay_what_the_evaluator_makes_them_while_nodes_move"
    ),
}


def name_of(node: ast.expr) -> str:
    """The last part of a name, as ``kernel`` in ``@compiled.kernel(allocates=True)``."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


@cache
def functions() -> dict[str, ast.FunctionDef]:
    """All functions of `placewright.kernels` by module and name."""
    found = {}
    for path in KERNELS.rglob("*.py"):
        module = ".".join(path.relative_to(KERNELS).with_suffix("").parts)
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found[f"{module}.{node.name}"] = node
    return found


def kernels() -> set[str]:
    """Those that Python calls."""
    return {
        name for name, node in functions().items() if "kernel" in map(name_of, node.decorator_list)
    }


def called_by(kernel: str) -> set[str]:
    """All functions of kernels that a kernel calls, through others too.

    Functions are told by where the module that calls them has them from.
    """
    found, waiting = set(), [kernel]
    while waiting:
        one = waiting.pop()
        module = importlib.import_module(f"placewright.kernels.{one.rpartition('.')[0]}")
        body = (n for line in functions()[one].body for n in ast.walk(line))
        calls = {name_of(n) for n in body if isinstance(n, ast.Call)}
        for call in calls & set(vars(module)):
            function = getattr(module, call)
            home = getattr(function, "__module__", "") or ""
            each = f"{home.removeprefix('placewright.kernels.')}.{call}"
            if each in functions() and each not in found:
                found.add(each)
                waiting.append(each)
    return found


def names_in(test: str) -> set[str]:
    """All names that a test module uses, functions it imports under another name by their own."""
    tree = ast.parse((TESTS / (test.replace(".", "/") + ".py")).read_text("utf-8"))
    nodes = list(ast.walk(tree))
    used = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    used |= {each.id for each in nodes if isinstance(each, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            used |= {each.name for each in node.names if each.asname in used}
    return used


def test_every_kernel_has_a_twin_is_part_of_one_that_has_or_says_why_not():
    tables = [set(TWINS), set(PARTS), set(WITHOUT)]
    assert set.union(*tables) == kernels()
    assert sum(map(len, tables)) == len(kernels())


@pytest.mark.parametrize("kernel", TWINS)
def test_a_test_uses_both_the_kernel_and_its_twin(kernel):
    test, twin, through = TWINS[kernel]
    module, _, function = twin.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
    assert names_in(test) >= {function, through or kernel.rpartition(".")[2]}


@pytest.mark.parametrize("kernel", PARTS)
def test_a_part_is_called_by_the_kernel_that_is_compared(kernel):
    whole = PARTS[kernel]
    assert whole in TWINS or whole in WITHOUT
    assert kernel in called_by(whole)


@pytest.mark.parametrize("kernel", WITHOUT)
def test_what_has_no_twin_has_a_test_of_what_holds_for_it(kernel):
    test, _, function = WITHOUT[kernel].rpartition(".")
    assert callable(getattr(importlib.import_module(f"tests.{test}"), function))
