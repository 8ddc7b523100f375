"""Serving a language model: prefill and decode as two workloads of one placement.

`mix` says what a request is, `request` makes one problem of both phases, `planning` plans it and
works out what each phase then takes, `capacity` says how many sequences fit beside the weights.
"""
