"""Encode and decode the on-disk format of a table: file names, footers, logs, timeline files, metadata records.

All functions convert between values and bytes; they access neither storage nor clock.
"""
