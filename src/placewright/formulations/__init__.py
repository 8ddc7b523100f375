"""The mathematical programs themselves, which planners solve and bounds relax."""
