"""Encode and decode the records and files of the metadata table."""
