"""Check the number of buckets that a writer was given against the keys that a table stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streaming_lsm.arrow.columns import strings
from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.query.slices.slice_reader import SliceReader

_LOOKED_AT = 16
"""File slices that are looked at: a wrong number of buckets shows in nearly every one of them."""


def check_buckets(table: TableConfig, slices: Sequence[FileSlice], reader: SliceReader) -> None:
    """Compare the buckets of stored keys with those of their file groups.

    See docs/format/07-index-and-metadata.md, "Simple bucket index".

    Args:
        table: with the number of buckets, and the hash fields, to be checked.
        slices: the latest slice of every file group.
        reader: reads the record key of a slice.

    Raises:
        ConfigError: keys are stored in other buckets; written so, they would be in the table twice.
    """
    for found in slices[:_LOOKED_AT]:
        lone = found if found.base is None else replace(found, logs=())
        batch = next(reader.read(lone), None)
        if batch is None:
            continue
        keys, stored = strings(batch.column(0)), bucket_of(found.file_id)
        buckets = bucket_ids(keys, table.record_key_fields, table.hash_fields, table.num_buckets)
        wrong = np.flatnonzero(buckets != stored)
        if len(wrong):
            raise ConfigError(
                f"key {keys[int(wrong[0])].as_py()!r} is stored in bucket {stored} of partition "
                f"{found.partition_path!r}; with hoodie.bucket.index.num.buckets={table.num_buckets} and "
                f"hoodie.bucket.index.hash.field={','.join(table.hash_fields)} it would be written to bucket "
                f"{buckets[wrong[0]]}: give the values that the table was written with"
            )
