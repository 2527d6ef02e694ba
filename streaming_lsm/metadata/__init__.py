"""The metadata table: created, committed to, listed, compacted, dropped."""
