"""Rows of numbers by loops: array expressions take many times as long to compile."""

from __future__ import annotations

import math

from placewright.kernels.compiled import inner


@inner
def copy_into(target, source):
    """What `target[: len(source)] = source` does, for rows."""
    for i in range(len(source)):
        target[i] = source[i]


@inner
def copy_table(target, source):
    """The same for tables ``[row, column]``."""
    for row in range(len(target)):
        copy_into(target[row], source[row])


@inner
def equal_rows(one, other):
    """Whether two rows of one length hold the same numbers."""
    equal = True
    for i in range(len(one)):
        equal &= one[i] == other[i]
    return equal


@inner
def largest_of(values):
    """What `values.max()` does, for a row that is not empty."""
    largest = values[0]
    for value in values[1:]:
        largest = max(largest, value)
    return largest


@inner
def smallest_of(values):
    """What `values.min()` does, for a row that is not empty."""
    smallest = values[0]
    for value in values[1:]:
        smallest = min(smallest, value)
    return smallest


@inner
def least_of(table):
    """Row and column of the least entry of a table, the first of several."""
    at_row, at_column = 0, 0
    for row in range(len(table)):
        for column in range(table.shape[1]):
            if table[row, column] < table[at_row, at_column]:
                at_row, at_column = row, column
    return at_row, at_column


@inner
def total_of(values):
    """What `values.sum()` does."""
    total = 0.0
    for value in values:
        total += value
    return total


@inner
def tilt(weight, gains, largest, pace):
    """A step of multiplicative weights, to a sum of 1: more for what gains more than the mean."""
    mean = total_of(gains) / len(gains)
    for i in range(len(weight)):
        weight[i] *= math.exp(pace * (gains[i] - mean) / largest)
    total = total_of(weight)
    for i in range(len(weight)):
        weight[i] /= total
