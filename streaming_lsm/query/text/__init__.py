"""Convert rows, changes and filters to and from text, for the command line."""
