"""Encode and decode the content of timeline files: commits, cleans, rollbacks, compaction plans."""
