"""List the file groups and file slices of a table as of an instant, and open their files in merge order."""
