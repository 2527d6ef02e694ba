"""The record buffer of a task: budget, sorted runs, spilling, dedup."""
