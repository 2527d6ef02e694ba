"""Prune the files and row groups that a filter cannot need, without changing the rows of a merge."""
