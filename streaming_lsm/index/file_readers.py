"""Read from data files what the metadata table records of them."""

from __future__ import annotations

from streaming_lsm.index.stored_blooms import stored_bloom
from streaming_lsm.index.stored_expressions import stored_expression
from streaming_lsm.index.stored_keys import TableKeys
from streaming_lsm.index.stored_ranges import stored_ranges
from streaming_lsm.index.stored_values import TableValues
from streaming_lsm.metadata.partitions.base import FileReaders

FILE_READERS = FileReaders(
    ranges=stored_ranges, bloom=stored_bloom, keys=TableKeys(), values=TableValues(), expression=stored_expression
)
