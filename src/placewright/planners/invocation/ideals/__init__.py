"""Dynamic programming over ideals for invocation latency: what `ideal_dp` fills in and looks up.

- `passes`: which ops are planned together, and where those go that are left out;
- `listing`: the ideals, and the steps between them, with the `crossings` of tensors;
- `kinds`: accelerators that count as one, and codes of how many are in use;
- `table`: the least latency of each ideal; `blocks` of several subgraphs, and `sharing` them out;
- `floors`: what is still to be done after an ideal, at least;
- `search`: all of it in turn, for one part.
"""
