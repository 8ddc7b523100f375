"""Outputs are compared in any type, and NaNs and infinities are equal to themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from onnxruntime import OrtValue

from placewright.errors import ExecutionError
from placewright.runtime.onnx_sessions.outputs import array_of, max_abs_difference

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        ([1.0, NAN, INF], [1.0, NAN, INF], 0.0),
        ([1.0, 2.0], [1.5, 2.25], 0.5),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([INF, 0.0], [-INF, 0.0], INF),
        ([], [], 0.0),
        ([True, False], [True, True], 1.0),
        ([2**40, 3], [2**40 + 2, 3], 2.0),
        ([1 + 1j], [1 + 4j], 3.0),
        (np.array(["cat", "dog"], object), np.array(["cat", "dog"], object), 0.0),
        (np.array(["cat", "dog"], object), np.array(["cat", "doge"], object), INF),
    ],
)
def test_the_difference_is_the_largest_distance(
    expected: Any, found: Any, difference: float
) -> None:
    assert max_abs_difference(["y"], [np.array(expected)], [np.array(found)]) == difference


def test_outputs_of_other_shapes_or_types_are_an_error() -> None:
    y = np.zeros((2, 3), np.float32)
    with pytest.raises(ExecutionError, match=r"'y' is float32\[3, 2\] instead of float32\[2, 3\]"):
        max_abs_difference(["y"], [y], [y.T])
    with pytest.raises(ExecutionError, match=r"'y' is float64\[2, 3\] instead of float32\[2, 3\]"):
        max_abs_difference(["y"], [y], [y.astype(np.float64)])


def test_bfloat16_is_widened_and_what_numpy_lacks_is_compared_by_its_bytes() -> None:
    bits = np.array([[0x3F80, 0xC020]], np.uint16)
    wide = array_of(OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16))
    assert (wide.dtype, wide.tolist()) == (np.float32, [[1.0, -2.5]])
    small = np.array([0x30, 0x38], np.uint8)
    narrow = array_of(OrtValue.ortvalue_from_numpy_with_onnx_type(small, 17))
    assert max_abs_difference(["y"], [narrow], [narrow]) == 0.0
    assert max_abs_difference(["y"], [narrow], [narrow[::-1]]) == INF
