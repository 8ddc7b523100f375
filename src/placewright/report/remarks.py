"""What is worth saying of a plan besides its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from placewright.plan import Plan
from placewright.problem import Problem
from placewright.units import format_bytes, listed

NEARLY = 0.9  # of a plan's value: what a tie takes that limits it


def remarks(plan: Plan | str | Path) -> list[str]:
    """A sentence for each thing that limits a plan (or plan file) and can be chosen otherwise.

    For most plans there is none.

    A pipeline of contiguous stages may be limited by ops that must be on one device, such as those
    with tied weights: all between them is there too, whatever other devices there are.
    """
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    found = [_tie(plan.problem, plan.value), _copies(plan), recompute_words(plan)]
    return [each for each in found if each]


def _copies(plan: Plan) -> str:
    """Of ops that have copies of weights they share, where the plan uses several devices."""
    problem = plan.problem
    copied = problem.op_copied
    if not copied.any() or len(set(plan.placement.device.ravel().tolist())) < 2:
        return ""
    names = [f"'{problem.op_names[op]}'" for op in np.flatnonzero(copied)]
    have = "has a copy" if len(names) == 1 else "have copies"
    training = problem.is_backward.any()
    cost = "what they exchange in training is counted" if training else "that costs memory only"
    return (
        f"{listed(names)} {have} of weights that other ops hold too "
        f"({format_bytes(float(copied.sum()))}), so that these need not be on one device: {cost}"
    )


def recompute_words(plan: Plan) -> str:
    """Of blocks that run again in the backward pass: what it takes, and what is not kept for it."""
    from placewright.coarsen.blocks import find_blocks
    from placewright.coarsen.recompute import largest_made_again, made_again
    from placewright.stash import recomputed_ops

    problem = plan.problem
    again = recomputed_ops(problem)
    if not again.any():
        return ""
    first = plan.placement.device.reshape(problem.op_count, -1)[:, 0]
    seconds = problem.op_time[np.arange(problem.op_count), first]
    share = float(seconds[again].sum() / max(seconds.sum(), 1e-300))
    blocks = find_blocks(problem).op_block
    saved = made_again(problem)
    size = float(problem.tensor_bytes[saved].sum())
    room = largest_made_again(problem, blocks)
    per = "" if problem.options.micro_batches is None else " per micro-batch"
    left = (
        ""
        if problem.options.memory == "peak"
        else (f"; each device leaves {format_bytes(room)} free for the activations of the largest")
    )
    return (
        f"{len(set(blocks[again].tolist()))} blocks run again in the backward pass, {share:.1%} of "
        f"computing, instead of keeping {format_bytes(size)} of activations{per}{left}"
    )


def _tie(problem: Problem, value: float) -> str:
    """Of ops that colocation and contiguity keep together, where these limit the plan."""
    from placewright.analysis.ties import largest_tie
    from placewright.bounds import lower_bound

    options = problem.options
    if options.objective != "throughput" or not options.contiguous:
        return ""
    tie = largest_tie(problem)
    if tie is None or tie.seconds.min() < NEARLY * value:
        return ""
    free = replace(problem, options=replace(options, contiguous=False))
    if lower_bound(free).value > NEARLY * tie.seconds.min():
        return ""
    return f"{tie}; --no-contiguous lets these run elsewhere"
