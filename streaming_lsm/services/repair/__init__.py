"""Rebuild a lost timeline from the names and footers of data files."""
