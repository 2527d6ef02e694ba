"""Create, drop, show and verify the indexes of a table: the partitions of its metadata table."""
