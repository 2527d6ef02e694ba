"""Rows and filters as text, for the command line."""
