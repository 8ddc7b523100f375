"""Imports of slow sources, kept in the user's cache: `imports` keeps them, `keys` finds them."""
