"""Encode and decode hoodie.properties, merge modes, file names and partition metadata."""
