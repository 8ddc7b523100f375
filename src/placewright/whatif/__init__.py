"""What if: other clusters (`sweep`), lost devices (`replan`), costs that vary (`robustness`).

Each asks the planners again and again; what they say is judged as every plan is.
"""
