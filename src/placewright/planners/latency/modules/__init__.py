"""Modules that a graph falls apart into, annealed one by one: planner ``module-annealing``.

`planner` says what is done next, `line` is the graph as modules in a row, `arc` a module between
two devices, `knapsack` the choice of plans of the modules where memory is short. In a module
`equal_branches` finds equal branches, `branch_assignment` counts how many go where, `branches` puts
them in order.
"""
