"""The formula of times, and the fit that finds its figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.costs.prediction.families import FAMILIES, VIEW, family_of
from placewright.costs.prediction.fit import (
    ROOT,
    ROOT_SPREAD,
    fit_figures,
    learn,
    seconds_of,
)
from placewright.costs.prediction.work import Work

sizes = st.floats(0, 10)
outputs = st.one_of(st.just(math.inf), st.floats(1e-3, 1e6))
figures = st.lists(st.floats(-12, 3), min_size=8, max_size=8).map(np.array)


def naive_seconds(log_figures, computing, moving, before, outputs):
    overhead, a, b, c, z, d, v, e = (math.exp(each) for each in log_figures)
    moved = b * min(moving, z) + c * max(moving - z, 0.0)
    overhead *= 1 + d * before / (before + v)
    idle = (1 + (e / outputs) ** 4) ** 0.25
    return overhead + ((a * computing * idle) ** 4 + moved**4) ** 0.25


@given(figures, st.lists(st.tuples(sizes, sizes, sizes, outputs), min_size=1, max_size=5))
def test_the_formula_is_that_of_its_description(log_figures, works):
    work = Work(*np.array(works).T)
    expected = [naive_seconds(log_figures, *each) for each in works]
    assert seconds_of(log_figures, work) == pytest.approx(expected, rel=1e-9)


def drawn(rng, count):
    """Sizes over five orders of magnitude, most ops either computing or moving."""
    return Work(*(10 ** rng.uniform(-7, -2, count) for _ in range(3)), np.full(count, np.inf))


def test_figures_are_found_again_and_extrapolate():
    rng = np.random.default_rng(0)
    true = np.log([8e-6, 1.3, 0.7, 2.5, 1e-4, 5.0, 1e-4, 8192.0])
    work = drawn(rng, 200)
    took = seconds_of(true, work) * np.exp(0.05 * rng.standard_normal(200))
    found = fit_figures(work, took, ROOT, ROOT_SPREAD)
    larger = Work(work.computing * 10, work.moving * 10, work.before, work.outputs)
    for asked in (work, larger):
        assert seconds_of(found, asked) == pytest.approx(seconds_of(true, asked), rel=0.1)


def test_a_few_wild_samples_do_not_move_the_fit():
    rng = np.random.default_rng(1)
    true = np.log([8e-6, 1.3, 0.7, 2.5, 1e-4, 5.0, 1e-4, 8192.0])
    work = drawn(rng, 100)
    took = seconds_of(true, work)
    took[:5] *= 50
    found = fit_figures(work, took, ROOT, ROOT_SPREAD)
    assert np.median(np.abs(np.log(seconds_of(found, work) / seconds_of(true, work)))) < 0.05


def test_one_sample_moves_an_op_from_its_family():
    """An op four times as slow as its family, measured once: nearer to it than to the family."""
    rng = np.random.default_rng(2)
    work = drawn(rng, 41)
    took = seconds_of(np.log([5e-6, 1.5, 1.0, 1.5, 1e-4, 1.0, 1e-4, 8192.0]), work)
    took[40] *= 4
    ops = ["aten.add.Tensor"] * 40 + ["aten.erf.default"]
    efficiency = learn(ops, ["elementwise"] * 41, work, took)
    asked = work.of(np.array([40]))
    one = efficiency.seconds("aten.erf.default", "elementwise", asked)[0]
    others = efficiency.seconds("aten.mul.Tensor", "elementwise", asked)[0]
    assert others == pytest.approx(took[40] / 4, rel=0.2)
    assert one > 2 * others


@given(st.integers(0, 1000))
def test_whatever_was_measured_predictions_are_finite_and_above_zero(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    seconds = (rng.choice([0.0, 1e-9, 1e-3, 10.0], count) for _ in range(3))
    work = Work(*seconds, rng.choice([1.0, 1e5, np.inf], count))
    took = rng.choice([0.0, 1e-9, 1e-4, 5.0], count)
    ops = [f"op{number % 3}" for number in range(count)]
    efficiency = learn(ops, ["elementwise"] * count, work, took)
    for op, family in (("op0", "elementwise"), ("new", "elementwise"), ("new", "product")):
        found = efficiency.seconds(op, family, work)
        assert np.isfinite(found).all() and (found > 0).all()


@pytest.mark.parametrize(
    ("op", "family"),
    {
        "aten.linear.default": "product",
        "aten.addmm.default": "product",
        "aten._grouped_mm.default": "product",
        "MatMul": "product",
        "aten.conv2d.default": "convolution",
        "Conv": "convolution",
        "aten.scaled_dot_product_attention.default": "attention",
        "aten._softmax.default": "softmax",
        "aten.layer_norm.default": "normalization",
        "aten._native_batch_norm_legit_no_training.default": "normalization",
        "aten.max_pool2d.default": "pooling",
        "aten.mean.dim": "reduction",
        "aten.embedding.default": "gather",
        "aten.index.Tensor": "gather",
        "aten.cat.default": "copy",
        "aten.clone.default": "copy",
        "aten.gelu.default": "elementwise",
        "aten.add.Tensor": "elementwise",
        "aten._to_copy.default": "copy",
    }.items(),
)
def test_ops_have_the_family_of_what_they_do(op, family):
    assert family_of(op) == family
    assert family in FAMILIES and VIEW in FAMILIES
