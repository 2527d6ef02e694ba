"""Maintain and read the metadata table: create it, commit to it, list files by it, compact it, drop it."""
