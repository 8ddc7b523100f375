"""The optimizer of a pipeline's training steps where none is asked for."""

from __future__ import annotations

from placewright.runtime.ranks.state import Optimizer

STEEPEST = Optimizer("sgd", 0.01)
"""Plain gradient descent: its step needs nothing but the gradients."""
