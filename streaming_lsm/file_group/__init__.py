"""File groups and file slices: which files make up the table as of an instant, and in which order they merge."""
