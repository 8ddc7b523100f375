"""Units that exchange much, on several scales: what a search moves together."""

from __future__ import annotations

import numpy as np

from placewright.analysis.orders import mean_edge_time, mean_op_time
from placewright.graph import Whole
from placewright.kernels.latency.multilevel_matching import join_units
from placewright.kernels.latency.multilevel_search import Clusters
from placewright.problem import Problem

ROUNDS = 10
LEAST_PROGRESS = 0.9
LARGEST_SHARE = 0.02  # of all work: the most in one cluster


def clusters_of(problem: Problem, rng: np.random.Generator) -> Clusters:
    """Clusters on several scales, the first of single units; each scale is made of the one before.

    Pairs are joined that send each other most for what they compute.
    """
    count = problem.unit_count
    a, b = problem.op_unit[problem.edge_producer], problem.op_unit[problem.consumers]
    a, b = np.minimum(a, b).astype(np.int64), np.maximum(a, b).astype(np.int64)
    seconds = mean_edge_time(problem)
    mass = np.bincount(problem.op_unit, mean_op_time(problem), count).astype(np.float64)
    most = LARGEST_SHARE * float(mass.sum())
    cluster: Whole = np.arange(count)
    scales = [cluster]
    for _ in range(ROUNDS):
        apart = a != b
        key, place = np.unique(a[apart] * len(mass) + b[apart], return_inverse=True)
        seconds = np.bincount(place, seconds[apart], len(key)).astype(np.float64)
        a, b = key // len(mass), key % len(mass)
        weight = seconds / (np.minimum(mass[a], mass[b]) + mass.mean())
        best = np.argsort(-weight * rng.uniform(0.7, 1.0, len(weight)), kind="stable")
        partner = join_units(a[best], b[best], mass, most)
        number = np.unique(np.minimum(partner, np.arange(len(mass))), return_inverse=True)[1]
        fewer = int(number.max()) + 1
        if fewer > LEAST_PROGRESS * len(mass):
            break
        a, b = np.minimum(number[a], number[b]), np.maximum(number[a], number[b])
        mass = np.bincount(number, mass, fewer).astype(np.float64)
        cluster = number[cluster]
        scales.append(cluster)
    return _listed(scales)


def _listed(scales: list[Whole]) -> Clusters:
    bases = np.cumsum([0, *(int(cluster.max()) + 1 for cluster in scales)])
    named = [cluster + base for cluster, base in zip(scales, bases[:-1], strict=True)]
    everyone = np.concatenate(named)
    order = np.argsort(everyone, kind="stable")
    return Clusters(
        cluster_of=np.stack(named).astype(np.int32),
        offsets=np.searchsorted(everyone[order], np.arange(bases[-1] + 1)),
        units=(order % len(scales[0])).astype(np.int32),
    )
