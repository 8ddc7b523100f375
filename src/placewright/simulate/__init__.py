"""Evaluators: what a placement is worth under each objective."""
