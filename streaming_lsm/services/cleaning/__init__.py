"""Clean a table: select old file slices, check plans, delete files."""
