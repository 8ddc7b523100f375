"""What if: other clusters (`sweep`), lost devices (`replan`), costs that vary (`robustness`).

`sweep` and `replan` ask the planners again, `robustness` times one plan, `robust` searches
from it; what they say is judged as every plan is. `explain` moves single ops of one plan.
"""
