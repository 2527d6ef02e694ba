"""Records and files of the metadata table."""
