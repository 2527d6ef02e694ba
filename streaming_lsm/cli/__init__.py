"""Implement ``lsm``, the command line: its verbs, their text tables, and the configuration page."""
