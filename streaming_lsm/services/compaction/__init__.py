"""Compaction: trigger, planner, check of plans, task, runner."""
