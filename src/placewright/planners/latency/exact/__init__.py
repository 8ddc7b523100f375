"""Planners that prove how good their plan is: integer and constraint programs, and modules."""
