"""Smaller problems from larger ones, and the way back."""
