"""Encode and decode log files: footers of native logs, blocks of inline logs, delete blocks."""
