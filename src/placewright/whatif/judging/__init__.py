"""Placements that people have already, as their tools write them, valued like a plan."""
