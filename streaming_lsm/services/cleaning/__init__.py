"""Cleaning: planner, check of plans, runner."""
