"""The on-disk grammar of a table: names, footers, metadata records. Values to bytes and back, no files, no clocks."""
