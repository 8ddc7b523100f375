"""What runs teach: measured beside planned, kept for the next plan, and plans that get better.

`comparison.py` sets a run beside its plan, `calibrate.py` keeps times of ops,
`link_correction.py` those of transfers, `tuning.py` goes round: plan, run, learn, plan again.
"""
