"""Contents of the timeline's files: commits, cleans, rollbacks, compaction plans."""
