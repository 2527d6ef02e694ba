"""The partitions of the metadata table that are kept up to date, a module for each; see `registry`."""
