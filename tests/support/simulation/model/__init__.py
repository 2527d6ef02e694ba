"""What must come of a run: rows after each commit, and conflicts."""
