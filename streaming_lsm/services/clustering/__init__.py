"""Re-collocate the rows of file groups by columns of the user's choice."""
