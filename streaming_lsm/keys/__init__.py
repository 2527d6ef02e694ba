"""Record keys, partition paths and buckets of a batch, computed column by column."""
