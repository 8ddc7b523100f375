"""Planners that change a plan as long as that makes it better."""
