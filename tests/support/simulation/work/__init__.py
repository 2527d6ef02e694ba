"""The work of a run: a table, its mode, and what is done with it."""
