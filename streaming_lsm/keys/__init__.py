"""Compute record keys, partition paths and buckets of a batch, column by column."""
