"""Exclude concurrent writers: the table's lock, its owner, heartbeats and markers."""
