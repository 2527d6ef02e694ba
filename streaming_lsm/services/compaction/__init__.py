"""Compact a table: trigger, planner, check of plans, task and runner."""
