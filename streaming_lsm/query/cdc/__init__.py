"""Read the changes of rows (CDC): from change logs, or from the slices before and after a write."""
