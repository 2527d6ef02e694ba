"""Helpers of the tests that more than one folder uses."""
