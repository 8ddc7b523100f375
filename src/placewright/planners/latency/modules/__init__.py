"""Module splitting (Ghannane and Abdelfattah 2023, DiviML, §IV-B): modules solved one by one.

1. `analysis.modules` finds the modules, `analysis.parts` joins those that units tie together.
2. `chain` puts the parts in a row: part t goes from a device of cut op t - 1 to one of cut op t,
   an *arc* for each pair of devices. Parts that are the same problem share their arcs.
3. Tables ``[source, target]`` of an arc's seconds are combined by a shortest path along the chain
   (`Chain.shortest`): over seconds found it is a plan, over least seconds a bound.
4. The arcs of the path are looked at more closely, and the path is found again, until nothing
   more is gained or time is up: by constraint programs in `arcs_exact`, by annealing in
   `arcs_annealed`. Both are `chain.Arcs`.
5. `Chain.joined` puts the plans of the parts one after another.

Planner ``milp-split`` (`milp_split`) does so with exact arcs. Where memory ties them together,
`chain_tied` goes on with prices for bytes, and `priced_arcs` keeps what is known of each part at
those. Where modules have several channels between them, they overlap in time and there are no arcs:
`channels` solves them in order, and `channel_bound` proves what can be proved.

Planner ``module-annealing`` (`annealing`) does so with annealed arcs. Where memory is short,
`knapsack` chooses a plan for each part. In a part `equal_branches` finds equal branches,
`branch_assignment` counts how many go where, `branches` puts them in order.
"""
